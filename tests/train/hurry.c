/* Replaces alarm, for a test that cannot wait as long as the program does: TUTTI_TRAIN_HURRY
 * divides the seconds. */
#include <stdlib.h>
#include <unistd.h>

unsigned __real_alarm(unsigned seconds);
unsigned __wrap_alarm(unsigned seconds);

unsigned __wrap_alarm(unsigned seconds)
{
    const char *times = getenv("TUTTI_TRAIN_HURRY");
    const unsigned divisor = times ? (unsigned)strtoul(times, NULL, 10) : 1;
    return __real_alarm(seconds && divisor ? (seconds - 1) / divisor + 1 : 0);
}
