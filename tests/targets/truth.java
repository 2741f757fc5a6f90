// The program of truth.c in Java. Before it is ready, its functions are compiled.
//
// usage: java -XX:CompileCommand=dontinline,Truth::spin* Truth THREADS MILLISECONDS

import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.Random;
import java.util.function.LongUnaryOperator;

final class Truth {
    static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    static final String[] NAMES = {
        "spin_alpha", "spin_beta", "spin_gamma", "spin_delta", "spin_epsilon"
    };
    static final LongUnaryOperator[] FUNCTIONS = {
        Truth::spinAlpha, Truth::spinBeta, Truth::spinGamma, Truth::spinDelta, Truth::spinEpsilon
    };
    /** Percent of a cycle, which is 100 ms on average. */
    static final int[] WEIGHTS = {35, 25, 20, 12, 8};

    static volatile long sink;

    static long now() {
        return THREADS.getCurrentThreadCpuTime();
    }

    /** About 15 µs. */
    static long burn(long x) {
        for (int n = 0; n < 10000; n++) x = x * 6364136223846793005L + 1442695040888963407L;
        return x;
    }

    /** Works until this thread has used the quota of CPU time; returns the time used. */
    static long spinAlpha(long quota) {
        long start = now(), used;
        do sink = burn(sink + 1);
        while ((used = now() - start) < quota);
        return used;
    }

    static long spinBeta(long quota) {
        long start = now(), used;
        do sink = burn(sink + 2);
        while ((used = now() - start) < quota);
        return used;
    }

    static long spinGamma(long quota) {
        long start = now(), used;
        do sink = burn(sink + 3);
        while ((used = now() - start) < quota);
        return used;
    }

    static long spinDelta(long quota) {
        long start = now(), used;
        do sink = burn(sink + 4);
        while ((used = now() - start) < quota);
        return used;
    }

    static long spinEpsilon(long quota) {
        long start = now(), used;
        do sink = burn(sink + 5);
        while ((used = now() - start) < quota);
        return used;
    }

    /** Cycles of all functions, in a random order and for a random time. */
    static void work(long seed, long quota, long[] used) {
        Random random = new Random(seed);
        int[] order = {0, 1, 2, 3, 4};
        for (long done = 0; done < quota;) {
            for (int i = order.length - 1; i > 0; i--) {
                int j = random.nextInt(i + 1), kind = order[i];
                order[i] = order[j];
                order[j] = kind;
            }
            for (int kind : order) {
                // From half to one and a half of its part.
                long part = WEIGHTS[kind] * (500000L + random.nextInt(1000000));
                long spent = FUNCTIONS[kind].applyAsLong(part);
                used[kind] += spent;
                done += spent;
            }
        }
    }

    static long processNanos() {
        var system = (com.sun.management.OperatingSystemMXBean)
            ManagementFactory.getOperatingSystemMXBean();
        return system.getProcessCpuTime();
    }

    public static void main(String[] args) throws Exception {
        int threads = Integer.parseInt(args[0]);
        long quota = Long.parseLong(args[1]) * 1000000;
        // Many rounds, as calls are counted, and more than one turn of the loop each: a branch that
        // was never taken is not compiled.
        for (int round = 0; round < 600; round++)
            for (LongUnaryOperator function : FUNCTIONS) function.applyAsLong(30000);
        long[][] used = new long[threads][NAMES.length];
        System.out.println("ready");
        while (System.in.read() >= 0) {}
        long process = processNanos();
        Thread[] all = new Thread[threads];
        for (int i = 0; i < threads; i++) {
            int index = i;
            all[i] = new Thread(() -> work(index + 1, quota, used[index]));
            all[i].start();
        }
        for (Thread thread : all) thread.join();
        process = processNanos() - process;
        for (int kind = 0; kind < NAMES.length; kind++) {
            long sum = 0;
            for (long[] one : used) sum += one[kind];
            System.out.println(NAMES[kind] + " " + sum);
        }
        System.out.println("process " + process);
    }
}
