#ifndef TANGRAD_CRC32_H
#define TANGRAD_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Fill the tables; once, before the first checksum. */
void tg_crc32_prepare(void);

/* The CRC-32 of `count` bytes that follow others whose CRC-32 is `crc` (0 for none). */
uint32_t tg_crc32(uint32_t crc, const unsigned char *data, size_t count);

/* The CRC-32C (Castagnoli's polynomial) of `count` bytes, by a table. */
uint32_t tg_crc32c(const unsigned char *data, size_t count);

#endif
