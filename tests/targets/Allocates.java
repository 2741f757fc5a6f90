// Prints numbers, and allocates memory outside of Java's own heap.

import java.nio.ByteBuffer;

class Allocates {
    static ByteBuffer[] kept = new ByteBuffer[64];

    public static void main(String[] args) throws Exception {
        for (int n = 1;; n++) {
            System.out.println(n);
            for (int i = 0; i < kept.length; i++) kept[i] = ByteBuffer.allocateDirect(20000);
            Thread.sleep(20);
        }
    }
}
