import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.function.IntUnaryOperator;

/**
 * Threads wait in known stacks, which they write: "thread SHAPE", and for each method of this file its
 * name, file and line. "ready" follows the last one.
 */
public class Known {
    static final List<String> stacks = Collections.synchronizedList(new ArrayList<>());

    /** Waits for ever, after the stack is known. */
    static void rest(String shape, boolean waits) throws Exception {
        if (waits) { write(shape, new Throwable()); Thread.sleep(Long.MAX_VALUE); }
    }

    static void write(String shape, Throwable here) {
        StringBuilder text = new StringBuilder("thread " + shape + "\n");
        for (StackTraceElement frame : here.getStackTrace()) {
            if (frame.getClassName().startsWith("Known")) {
                text.append(frame.getClassName() + "." + frame.getMethodName());
                text.append("\t" + frame.getFileName() + "\t" + frame.getLineNumber() + "\n");
            }
        }
        stacks.add(text.toString());
    }

    static int plain(String shape, boolean waits) throws Exception {
        rest(shape, waits);
        return 1;
    }

    static int recursion(int depth, String shape, boolean waits) throws Exception {
        if (depth == 0) {
            return plain(shape, waits);
        }
        return depth % 2 == 0
            ? recursion(depth - 1, shape, waits)
            : 1 + recursion(depth - 1, shape, waits);
    }

    static int small(int number, String shape, boolean waits) throws Exception {
        return smaller(number + 1, shape, waits) + 1;
    }

    static int smaller(int number, String shape, boolean waits) throws Exception {
        int sum = number;
        sum += smallest(sum, shape, waits);
        return sum;
    }

    private static int smallest(int number, String shape, boolean waits) throws Exception {
        return number > 5 ? plain(shape, waits) : number;
    }

    synchronized int locked(long number, double[][] numbers, String shape, boolean waits)
            throws Exception {
        return (int) number + plain(shape, waits) + (int) numbers[0][0];
    }

    static class Inner<T extends Comparable<T>> implements Comparable<Inner<T>> {
        final String shape;
        final boolean waits;

        Inner(String shape, boolean waits) {
            this.shape = shape;
            this.waits = waits;
        }

        public int compareTo(Inner<T> other) {
            try {
                return plain(shape, waits) - 1;
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        }
    }

    static int sorted(String shape, boolean waits) {
        List<Inner<String>> list = new ArrayList<>();
        list.add(new Inner<>(shape, waits));
        list.add(new Inner<>(shape, waits));
        Collections.sort(list);
        return list.size();
    }

    static int lambda(String shape, boolean waits) {
        IntUnaryOperator twice = number -> {
            try {
                return number * 2 + plain(shape, waits);
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        };
        return twice.applyAsInt(3);
    }

    static int run(String shape, boolean waits) throws Exception {
        switch (shape) {
            case "plain": return plain(shape, waits);
            case "recursion": return recursion(60, shape, waits);
            case "inlined": return small(7, shape, waits);
            case "locked": return new Known().locked(7L, new double[][] {{1}}, shape, waits);
            case "sorted": return sorted(shape, waits);
            default: return lambda(shape, waits);
        }
    }

    public static void main(String[] arguments) throws Exception {
        String[] shapes = {"plain", "recursion", "inlined", "locked", "sorted", "lambda"};
        int rounds = arguments.length > 0 ? Integer.parseInt(arguments[0]) : 2;
        for (int round = 0; round < rounds; round++) {
            for (String shape : shapes) {
                run(shape, false);
            }
        }
        for (String shape : shapes) {
            Thread thread = new Thread(() -> {
                try {
                    run(shape, true);
                } catch (Exception error) {
                    error.printStackTrace();
                }
            });
            thread.setDaemon(true);
            thread.start();
        }
        while (stacks.size() < shapes.length) {
            Thread.sleep(1);
        }
        // They wait behind that.
        Thread.sleep(100);
        for (String stack : stacks) {
            System.out.print(stack);
        }
        System.out.println("ready");
        System.out.flush();
        Thread.sleep(Long.MAX_VALUE);
    }
}
