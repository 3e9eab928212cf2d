/* The two words that a Cortex-M3 reads first: its stack, and where it begins. */
typedef void (*entry)(void);
extern void _start(void);
__attribute__((section(".vectors"), used)) static const entry vectors[2] = {
    (entry)0x20010000, _start};
