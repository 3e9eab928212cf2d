/* The thread pool. One job at a time: threads take the next task's index from a counter until
 * none is left. A thread that finds the pool taken by another runs its job alone, so that calls
 * from many Python threads neither wait for each other nor deadlock. */
#define _GNU_SOURCE
#include "tgc.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_THREADS 256
/* Sleeping costs a wake-up, so a worker looks for the next job for a while before it sleeps: operations
 * of one program follow each other closely, quantized convolutions after 13 us of Python, small ones of
 * a whole network after up to 40. A look takes 25 ns on Zen 4 (one pause), hence all of them 50 us. */
#define LOOKS 2000
/* Of so many workers, one that waits for the caller's processor is a loss; of more, others do its part. */
#define FEW_WORKERS 8

static struct {
    pthread_mutex_t owner; /* held by the thread whose job runs */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_cond_t done;
    _Atomic uint64_t job; /* number of the latest job */
    _Atomic int64_t next;
    _Atomic int running;  /* workers inside the job */
    _Atomic int sleeping;
    _Atomic int open;     /* whether workers may still enter the job */
    int64_t tasks;
    tgc_task task;
    void *context;
    int started;
    int apart; /* the processor that workers keep off; -1: none yet */
    cpu_set_t allowed, placed; /* where workers could run, and where they were told to */
    pthread_t workers[FEW_WORKERS];
} pool = {.owner = PTHREAD_MUTEX_INITIALIZER,
          .lock = PTHREAD_MUTEX_INITIALIZER,
          .wake = PTHREAD_COND_INITIALIZER,
          .done = PTHREAD_COND_INITIALIZER};

static _Atomic int wanted; /* threads in all, the caller's included; 0: not decided yet */
static __thread int inside;

static inline void pause_a_little(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void take_tasks(void)
{
    int64_t index;
    inside = 1;
    while ((index = atomic_fetch_add_explicit(&pool.next, 1, memory_order_relaxed)) < pool.tasks)
        pool.task(index, pool.context);
    inside = 0;
}

/* Enter the job unless its owner has closed it, do tasks, and tell the owner when the last leaves. */
static void help(int rank)
{
    if (rank >= atomic_load(&wanted))
        return;
    atomic_fetch_add(&pool.running, 1);
    if (atomic_load(&pool.open))
        take_tasks();
    if (atomic_fetch_sub(&pool.running, 1) == 1 && !atomic_load(&pool.open)) {
        pthread_mutex_lock(&pool.lock);
        pthread_cond_signal(&pool.done);
        pthread_mutex_unlock(&pool.lock);
    }
}

static void *work(void *argument)
{
    int rank = (int)(intptr_t)argument;
    uint64_t seen = 0;
    for (;;) {
        uint64_t job = atomic_load(&pool.job);
        for (int look = 0; job == seen && look < LOOKS; look++) {
            pause_a_little();
            job = atomic_load(&pool.job);
        }
        if (job == seen) {
            pthread_mutex_lock(&pool.lock);
            atomic_fetch_add(&pool.sleeping, 1);
            while ((job = atomic_load(&pool.job)) == seen)
                pthread_cond_wait(&pool.wake, &pool.lock);
            atomic_fetch_sub(&pool.sleeping, 1);
            pthread_mutex_unlock(&pool.lock);
        }
        seen = job;
        help(rank);
    }
    return NULL;
}

static void forget_threads(void)
{
    /* A child of fork has the calling thread only; locks may be in any state. */
    pthread_mutex_init(&pool.owner, NULL);
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.wake, NULL);
    pthread_cond_init(&pool.done, NULL);
    atomic_store(&pool.running, 0);
    atomic_store(&pool.sleeping, 0);
    atomic_store(&pool.open, 0);
    pool.started = 0;
    CPU_ZERO(&pool.placed);
}

static void start_threads(int threads)
{
    static int registered;
    sigset_t all, old;
    if (!registered) {
        registered = 1;
        pthread_atfork(NULL, NULL, forget_threads);
    }
    /* Signals belong to the interpreter's main thread. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (pool.started < threads - 1) {
        pthread_t thread;
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        int failed = pthread_create(&thread, &attributes, work, (void *)(intptr_t)(pool.started + 1));
        pthread_attr_destroy(&attributes);
        if (failed)
            break; /* fewer threads give the same results */
        if (pool.started < FEW_WORKERS)
            pool.workers[pool.started] = thread;
        pool.started++;
        pool.apart = -1;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* Keep workers that are about to be woken off the caller's processor. Some schedulers wake a thread
 * where it was called from though others are idle (those of virtual machines that pack what runs, to
 * let processors sleep): it then waits until the caller has done all tasks alone. Costs a fraction of
 * the wake-ups, and nothing while the caller stays where it is. */
static void keep_apart(void)
{
    int here = sched_getcpu();
    if (here < 0 || here >= CPU_SETSIZE || here == pool.apart || pool.started == 0 || pool.started > FEW_WORKERS)
        return;
    cpu_set_t now, rest;
    if (pthread_getaffinity_np(pool.workers[0], sizeof now, &now) != 0)
        return;
    if (!CPU_EQUAL(&now, &pool.placed))
        pool.allowed = now; /* what they started with, or another has decided */
    rest = pool.allowed;
    CPU_CLR(here, &rest);
    if (CPU_COUNT(&rest) == 0)
        return;
    for (int i = 0; i < pool.started; i++)
        pthread_setaffinity_np(pool.workers[i], sizeof rest, &rest);
    pool.placed = rest;
    pool.apart = here;
}

/* The number that a variable gives, or 0. OpenMP's form: a list, of which the first is for the outermost level. */
static int threads_by(const char *variable)
{
    const char *text = getenv(variable);
    if (text == NULL || *text == '\0')
        return 0;
    long first = 0;
    for (const char *at = text;; at++) {
        char *end;
        long number = strtol(at, &end, 10);
        if (end == at || number < 1)
            break;
        first = first ? first : number;
        at = end + strspn(end, " \t");
        if (*at == '\0')
            return first > MOST_THREADS ? MOST_THREADS : (int)first;
        if (*at != ',')
            break;
    }
    fprintf(stderr, "tangrad-cpu: %s='%s' is ignored: expected a positive integer, or several with commas between\n",
            variable, text);
    return 0;
}

static int default_threads(void)
{
    int asked = threads_by("TANGRAD_NUM_THREADS");
    if (asked > 0)
        return asked;
    cpu_set_t set;
    int most = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    most = most < 1 ? 1 : most > MOST_THREADS ? MOST_THREADS : most;
    /* As PyTorch: MKL's variable before OpenMP's, and neither asks for more than there is. */
    asked = threads_by("MKL_NUM_THREADS");
    asked = asked > 0 ? asked : threads_by("OMP_NUM_THREADS");
    return asked > 0 && asked < most ? asked : most;
}

int tgc_threads(void)
{
    int threads = atomic_load_explicit(&wanted, memory_order_relaxed);
    if (threads == 0) {
        threads = default_threads();
        atomic_store(&wanted, threads);
    }
    return threads;
}

void tgc_set_threads(int threads)
{
    atomic_store(&wanted, threads < 1 ? 1 : threads > MOST_THREADS ? MOST_THREADS : threads);
}

void tgc_parallel(int64_t tasks, tgc_task task, void *context)
{
    int threads = tgc_threads();
    if (tasks <= 1 || threads == 1 || inside || pthread_mutex_trylock(&pool.owner) != 0) {
        for (int64_t index = 0; index < tasks; index++)
            task(index, context);
        return;
    }
    if (pool.started < threads - 1)
        start_threads(threads);
    pool.tasks = tasks;
    pool.task = task;
    pool.context = context;
    atomic_store(&pool.next, 0);
    atomic_store(&pool.open, 1);
    atomic_fetch_add(&pool.job, 1);
    if (atomic_load(&pool.sleeping)) {
        keep_apart();
        pthread_mutex_lock(&pool.lock);
        pthread_cond_broadcast(&pool.wake);
        pthread_mutex_unlock(&pool.lock);
    }
    take_tasks();
    atomic_store(&pool.open, 0);
    for (int look = 0; atomic_load(&pool.running) && look < LOOKS; look++)
        pause_a_little();
    if (atomic_load(&pool.running)) {
        pthread_mutex_lock(&pool.lock);
        while (atomic_load(&pool.running))
            pthread_cond_wait(&pool.done, &pool.lock);
        pthread_mutex_unlock(&pool.lock);
    }
    pthread_mutex_unlock(&pool.owner);
}
