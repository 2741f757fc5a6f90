/* Allocates in two threads and in the first one, keeps a part, and then computes. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *kept[100000];
static int used;

__attribute__((noinline)) static void *small(int i) {
	void *memory = malloc(64 + i % 100);
	memset(memory, 1, 8);
	return memory;
}

__attribute__((noinline)) static void *large(int i) {
	return calloc(1, 4096 + i);
}

static void *worker(void *unused) {
	for (int i = 0; i < 20000; i++) {
		void *memory = small(i);
		if (i % 3 == 0)
			free(memory);
		else
			kept[__sync_fetch_and_add(&used, 1)] = memory;
	}
	return unused;
}

int main(void) {
	pthread_t threads[2];
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, worker, NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 3000; i++)
		kept[used++] = large(i);
	double sum = 0;
	for (long i = 0; i < 300000000; i++)
		sum += i * 0.5;
	printf("%g\n", sum);
	return 0;
}
