// Busy Java: collections, strings, recursion, lambdas, exceptions, threads. usage: java Stacks SECONDS
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

public class Stacks {
    static int recurse(int n) {
        return n < 2 ? n : recurse(n - 1) + recurse(n - 2);
    }

    static long words(int seed) {
        Map<String, List<Integer>> words = new HashMap<>();
        for (int i = 0; i < 500; i++) {
            words.computeIfAbsent("word " + (i * seed) % 97, w -> new ArrayList<>()).add(i);
        }
        String all = words.keySet().stream().sorted().collect(Collectors.joining(","));
        return all.hashCode() + IntStream.range(0, 100).filter(i -> i % 3 == 0).sum();
    }

    static int thrown(int n) {
        try {
            if (n % 7 == 0) throw new IllegalStateException("seven " + n);
            return n;
        } catch (IllegalStateException e) {
            return e.getMessage().length();
        }
    }

    static void work(double seconds) {
        long end = System.nanoTime() + (long) (seconds * 1e9), sum = 0;
        for (int i = 1; System.nanoTime() < end; i++) {
            sum += recurse(15) + words(i) + thrown(i);
        }
        if (sum == 1) System.out.println("never");
    }

    public static void main(String[] args) throws Exception {
        double seconds = Double.parseDouble(args[0]);
        Thread other = new Thread(() -> work(seconds));
        other.start();
        work(seconds);
        other.join();
    }
}
