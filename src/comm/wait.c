/* Waiting for other ranks until the deadline, and naming those at fault when it has passed. */
#include "comm/wait.h"

#include <math.h>
#include <sched.h>

#include "comm/control.h"
#include "comm/transport.h"

#define PAUSES_MAX 8 /* that do not count as waiting */

tutti__wait tutti__wait_begin(tutti_comm *comm, const char *operation, int64_t sequence)
{
    double now = tutti__now();
    return (tutti__wait){comm, operation, sequence, now, now, 0, 0, false};
}

#define ANSWER_SECONDS 1.0 /* that ranks have to answer at the deadline */

/* No rank is named without having been asked: it may have begun to wait only now, or unannounced.
 * Time in which this process was stopped or not scheduled does not count against the others. */
static void ask_around(const tutti__wait *wait)
{
    tutti_comm *comm = wait->comm;
    double last = tutti__now(), waited = 0;
    comm->control->ask(wait);
    while (waited < ANSWER_SECONDS && !comm->dead) {
        (void)comm->control->receive(wait);
        if (comm->control->answered(comm)) return;
        tutti__sleep(1e-3);
        atomic_fetch_add_explicit(&comm->polls, 1, memory_order_relaxed);
        double now = tutti__now();
        waited += fmin(now - last, 0.1);
        last = now;
    }
}

static tutti_status missed(const tutti__wait *wait)
{
    tutti_comm *comm = wait->comm;
    const long long sequence = wait->sequence;
    const bool asks = comm->control->ask;
    char late[160] = "", left[160] = "", elsewhere[256] = "";
    if (asks) {
        ask_around(wait);
        comm->control->silent(wait, false, late, sizeof late);
        comm->control->silent(wait, true, left, sizeof left);
        comm->control->elsewhere(wait, elsewhere, sizeof elsewhere);
    }
    if (late[0])
        return tutti__comm_die(comm, "%s #%lld: not finished after %g s, nothing heard from %s",
                               wait->operation, sequence, comm->timeout, late);
    if (left[0])
        return tutti__comm_die(
            comm,
            "%s #%lld: not finished after %g s, nothing more heard from %s, which had entered it",
            wait->operation, sequence, comm->timeout, left);
    if (elsewhere[0])
        return tutti__comm_die(comm, "%s #%lld: not finished after %g s, while %s", wait->operation,
                               sequence, comm->timeout, elsewhere);
    return tutti__comm_die(comm, "%s #%lld: not finished after %g s%s", wait->operation, sequence,
                           comm->timeout, asks ? ", although every rank has entered it" : "");
}

tutti_status tutti__wait_check(tutti__wait *wait, double waited)
{
    tutti_comm *comm = wait->comm;
    atomic_fetch_add_explicit(&comm->polls, 1, memory_order_relaxed);
    TUTTI_TRY(tutti__comm_alive(comm, wait->operation));
    if (waited > 0.01 && comm->control->announce) {
        bool others_wait = comm->control->receive(wait);
        char reason[TUTTI__MESSAGE_MAX];
        const int gone = comm->control->gave_up(comm, reason, sizeof reason);
        if (gone >= 0) return tutti__comm_die(comm, "rank %d gave up: %s", gone, reason);
        double patience = fmin(1.0, comm->timeout / 4);
        if (!wait->announced && (others_wait || waited > patience)) {
            comm->control->announce(wait);
            wait->announced = true;
        }
    }
    return waited > comm->timeout ? missed(wait) : TUTTI_OK;
}

tutti_status tutti__wait_poll(tutti__wait *wait)
{
    double now = tutti__now();
    /* Time in which this process was itself stopped is no waiting, unless every poll is that slow
     * because a driver answers late. */
    if (now - wait->last > 0.5 && wait->pauses++ < PAUSES_MAX) wait->begin += now - wait->last;
    wait->last = now;
    double waited = now - wait->begin;
    /* spin while an answer may take microseconds, then yield the core */
    if (++wait->polls < 64 && waited < 1e-3) return TUTTI_OK;
    if (waited < 0.02)
        sched_yield();
    else
        tutti__sleep(waited < 1 ? 5e-5 : 1e-3);
    return tutti__wait_check(wait, waited);
}

tutti_status tutti__wait_device(tutti_comm *comm, tutti__event event, tutti__stream stream,
                                const char *operation, int64_t sequence)
{
    const tutti__runtime *run = &comm->backend->run;
    tutti__wait wait = tutti__wait_begin(comm, operation, sequence);
    for (;;) {
        bool done;
        TUTTI_TRY(event ? run->event_query(comm->device, event, &done)
                        : run->stream_query(comm->device, stream, &done));
        if (done) return TUTTI_OK;
        if (comm->transport->poll) TUTTI_TRY(comm->transport->poll(comm));
        TUTTI_TRY(tutti__wait_poll(&wait));
    }
}
