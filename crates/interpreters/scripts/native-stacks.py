"""For gdb: writes the native stacks of all threads of a stopped process, innermost frame first.

    thread THREAD-POINTER STACK-POINTER
    ADDRESS SIZE FUNCTION

All numbers but sizes are hexadecimal. Inlined functions have no frame.
"""

import gdb

output = []
for thread in gdb.selected_inferior().threads():
    thread.switch()
    frame = gdb.newest_frame()
    pointer = int(gdb.parse_and_eval("(unsigned long)$fs_base"))
    output.append("thread %x %x" % (pointer, int(frame.read_register("rsp"))))
    while frame:
        older = frame.older()
        if frame.type() == gdb.INLINE_FRAME:
            frame = older
            continue
        # The outermost frame ends where its caller's would be.
        size = int(older.read_register("rsp")) - int(frame.read_register("rsp")) if older else 8
        output.append("%x %d %s" % (frame.pc(), size, (frame.name() or "?")[:32]))
        frame = older
with open(gdb.convenience_variable("output").string(), "w") as file:
    file.write("\n".join(output) + "\n")
