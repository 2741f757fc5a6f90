import java.util.Arrays;
import java.util.function.IntUnaryOperator;

/**
 * Two recursions that take turns: `a` calls only `a`, `b` only `b` and a lambda. Each ends in work of
 * its own: a sort that calls back, and a regular expression. Runs for SECONDS.
 */
public class Recursions {
    static volatile long sink;

    static int a(int depth) {
        if (depth > 0) {
            return a(depth - 1) + 1;
        }
        Integer[] values = {3, 1, 2, 9, 7, 5, 4, 8, 6, 0};
        for (int round = 0; round < 20; round++) {
            int turn = round;
            Arrays.sort(values, (x, y) -> Integer.compare(x * turn % 7, y * turn % 7));
        }
        return values[0];
    }

    static int b(int depth) {
        if (depth > 0) {
            IntUnaryOperator below = value -> b(value - 1);
            return below.applyAsInt(depth) + 2;
        }
        return "a1b22c333d4444".replaceAll("[0-9]+", "x").length();
    }

    public static void main(String[] arguments) {
        long end = System.nanoTime() + Long.parseLong(arguments[0]) * 1_000_000_000L;
        while (System.nanoTime() < end) {
            for (int round = 0; round < 20; round++) {
                sink += a(20);
                sink += b(20);
            }
        }
    }
}
