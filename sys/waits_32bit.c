/* An i386 program to inspect: it runs until it is killed. */
#include <unistd.h>

int main(void) { return pause(); }
