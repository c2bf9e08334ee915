/* The transport and the control of one rank. */
#ifndef TUTTI_COMM_SELF_H
#define TUTTI_COMM_SELF_H

#include "comm/control.h"
#include "comm/transport.h"

extern const tutti__transport tutti__self_transport;
extern const tutti__control tutti__self_control;

#endif
