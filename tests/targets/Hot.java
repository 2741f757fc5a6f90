// Busy in hotMethod. usage: java Hot SECONDS
public class Hot {
    static int hotMethod(int n) {
        int sum = 0;
        for (int i = 0; i < n; i++) sum += i % 7;
        return sum;
    }

    public static void main(String[] args) {
        long end = System.currentTimeMillis() + Long.parseLong(args[0]) * 1000;
        int sum = 0;
        while (System.currentTimeMillis() < end) sum += hotMethod(10000);
        System.out.println(sum);
    }
}
