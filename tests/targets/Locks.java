/** Threads that wait for a monitor, and measure their own waits: Locks ROUNDS. */
public class Locks {
    static final Object monitor = new Object(), meeting = new Object();
    static int turn;
    static long waited;

    static void take() {
        long since = System.nanoTime();
        synchronized (monitor) {
            waited += System.nanoTime() - since;
        }
    }

    /** Waits until its turn has come, which is no contention. */
    static void await(int wanted) throws InterruptedException {
        synchronized (meeting) {
            while (turn != wanted) meeting.wait();
        }
    }

    static void next() {
        synchronized (meeting) {
            turn++;
            meeting.notifyAll();
        }
    }

    public static void main(String[] args) throws Exception {
        int rounds = args.length > 0 ? Integer.parseInt(args[0]) : 20;
        Thread waiter = new Thread(() -> {
            try {
                for (int n = 0; n < rounds; n++) {
                    await(2 * n + 1);
                    take();
                    next();
                }
            } catch (InterruptedException e) {
                throw new RuntimeException(e);
            }
        }, "waiter");
        waiter.start();
        for (int n = 0; n < rounds; n++) {
            synchronized (monitor) {
                next();
                Thread.sleep(10);
            }
            await(2 * n + 2);
        }
        waiter.join();
        System.out.println(waited / 1e9 + " 0");
    }
}
