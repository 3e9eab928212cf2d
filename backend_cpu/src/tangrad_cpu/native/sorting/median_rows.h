/* The k-th of keys in the order of integers. A template: define MD_KEY (unsigned), MD_T (its
 * floating type) and MD(name), and include. */

/* Floating numbers in the order of their values, NaN last; both zeros are one. Returns how many are NaN. */
static int64_t MD(of_floats)(const MD_T *restrict x, MD_KEY *restrict keys, int64_t n)
{
    const MD_KEY top = (MD_KEY)1 << (8 * sizeof(MD_KEY) - 1);
    int64_t none = 0;
    for (int64_t i = 0; i < n; i++) {
        const MD_T value = x[i] + (MD_T)0;
        MD_KEY bits;
        memcpy(&bits, &value, sizeof bits);
        const MD_KEY turned = bits & top ? ~bits : bits | top;
        const int nan = value != value;
        keys[i] = nan ? (MD_KEY)-1 : turned;
        none += nan;
    }
    return none;
}

static MD_T MD(to_float)(MD_KEY key)
{
    const MD_KEY top = (MD_KEY)1 << (8 * sizeof(MD_KEY) - 1);
    MD_T value;
    if (key == (MD_KEY)-1)
        return (MD_T)NAN;
    key = key & top ? key & ~top : ~key;
    memcpy(&value, &key, sizeof value);
    return value;
}

static void MD(insert)(MD_KEY *keys, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        const MD_KEY moved = keys[i];
        int64_t at = i;
        for (; at > 0 && keys[at - 1] > moved; at--)
            keys[at] = keys[at - 1];
        keys[at] = moved;
    }
}

/* Keep the keys of low .. high; returns how many there are. */
static int64_t MD(keep)(MD_KEY *keys, int64_t n, MD_KEY low, MD_KEY high)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++) {
        const MD_KEY key = keys[i];
        keys[kept] = key;
        kept += (key >= low) & (key <= high);
    }
    return kept;
}

/* The key that k others precede. A sample says between which keys it is likely to be; where it is not, or
 * nothing is left out, digits decide. */
static MD_KEY MD(select)(MD_KEY *keys, int64_t n, int64_t k)
{
    MD_KEY sample[SAMPLE];
    while (n > FEW) {
        for (int64_t i = 0; i < SAMPLE; i++)
            sample[i] = keys[i * (n / SAMPLE) + n / SAMPLE / 2];
        MD(insert)(sample, SAMPLE);
        const int64_t near = (int64_t)((double)k / (double)n * SAMPLE);
        const MD_KEY low = near < MARGIN ? 0 : sample[near - MARGIN];
        const MD_KEY high = near + MARGIN >= SAMPLE ? (MD_KEY)-1 : sample[near + MARGIN];
        int64_t below = 0, inside = 0;
        for (int64_t i = 0; i < n; i++) {
            below += keys[i] < low;
            inside += keys[i] <= high;
        }
        inside -= below;
        if (k < below || k >= below + inside || inside == n)
            break;
        if (low == high)
            return low;
        n = MD(keep)(keys, n, low, high);
        k -= below;
    }
    for (int shift = 8 * (int)sizeof(MD_KEY) - 8; n > FEW && shift >= 0; shift -= 8) {
        /* All keys left agree above this digit. */
        int64_t counts[256] = {0}, before = 0;
        for (int64_t i = 0; i < n; i++)
            counts[keys[i] >> shift & 255]++;
        int digit = 0;
        for (; before + counts[digit] <= k; digit++)
            before += counts[digit];
        int64_t kept = 0;
        for (int64_t i = 0; i < n; i++) {
            const MD_KEY key = keys[i];
            keys[kept] = key;
            kept += (key >> shift & 255) == (MD_KEY)digit;
        }
        n = kept;
        k -= before;
    }
    if (n > FEW)
        return keys[0]; /* all digits agree */
    MD(insert)(keys, n);
    return keys[k];
}

#undef MD_KEY
#undef MD_T
#undef MD
