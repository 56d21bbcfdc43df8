/* The protocol of quota leases, for the model checker Spin:
 * docs/design/archive/0046-check-quota-leases-with-a-model.md.
 *
 * Time is relative to the present: cells, stamps and admissions have ages, and leases a rest. So
 * the states are finitely many although a run never ends, and the checker visits all of them.
 * Ages count ticks, by the store's clock unless they are called true. A process that is suspended
 * is one that takes no step. Calls reach the store late, or never, or their answers are lost.
 *
 * Invariants, each switched on by -DCHECK_ and its name:
 *   H1   no window of true time has more admissions than the limit
 *   K4   no local admission of a revoked key starts after the revocation was answered
 *   W13  nor one from a lease of the old plan after the change of the plan was answered
 *   H7   no unit is used twice, no lease is counted twice
 *   END  no local admission from a lease that the store has counted
 *
 * Configurations and mutants, switched on by -D too, are listed in __main__.py.
 */

#define MARGIN 1                  /* ticks that two clocks may differ by within a span */
#ifdef PATIENCE_WITHOUT_MARGIN
#define SLACK 0
#else
#define SLACK MARGIN
#endif
/* The ticks for which the store lists a lease past its deadline, unless it is settled. They only matter to a change,
 * and after a step forward: otherwise holders have stopped at the deadline, and there are more states than needed. */
#if !defined(CHANGE) || !defined(FORWARD) || defined(ENDED_FORGOTTEN)
#define LINGER 0
#else
#define LINGER SPAN
#endif
#ifdef STEPS_BEYOND_LINGER
#define STEP (LINGER + 1)
#else
#define STEP WINDOW
#endif
#define LEASES (EACH * PROCESSES)
#define NONE 255
#ifdef NO_MARGIN
#define LAST_USE SPAN
#else
#define LAST_USE (SPAN - MARGIN)  /* a process admits while less has elapsed */
#endif
#define LONG_AGO (WINDOW + SPAN)

#ifdef CHECK_K4
#define K4(holds) assert(holds)
#else
#define K4(holds) skip
#endif
#ifdef CHECK_W13
#define W13(holds) assert(holds)
#else
#define W13(holds) skip
#endif
#ifdef CHECK_H7
#define H7(holds) assert(holds)
#else
#define H7(holds) skip
#endif
#ifdef CHECK_END
#define END(holds) assert(holds)
#else
#define END(holds) skip
#endif

mtype = { IDLE, SENT, ANSWERED };

/* Process p uses the leases numbered p and, where EACH is 2, PROCESSES + p. A lease is used again when no message and no memory has
 * it, so that it stands for an id that is never used twice. */
typedef Lease {
    bit out;             /* in the store: its units count in full */
    byte units;
    byte rest;           /* ticks until the deadline */
    byte lingers;        /* ticks for which it is listed, though its units are counted */
    bit awaited;         /* by the change to a key or plan */
    bit changed;         /* for W13: granted before the change */
    byte counted;        /* for H7: how often the store has counted it */
    byte used;           /* in the process: the units admitted */
    short stamp[SHARE];  /* the age of each; below 0: ahead of the store's clock */
    bit closed;          /* admits no more, and is to be settled */
    bit known            /* some message or memory has it */
};

/* A call of the store: an admission that may settle a lease and ask for one. */
typedef Call {
    mtype state = IDLE;
    bit lost;            /* its process does not wait for it any more */
    bit second;          /* it presents the second key, which may be revoked */
    byte settles = NONE; /* a lease */
    byte asks = NONE;
    byte holding = NONE; /* what the process held when it sent the call */
    byte elapsed;        /* since then, by the clock of the process */
    short offset;        /* the age of the grant less the time elapsed */
    bit slow;            /* that clock has missed a tick */
    bit verified;        /* the answer: the key is live */
    byte granted         /* units */
};

typedef Process {
    byte lease = NONE;   /* from which it admits */
    byte left;           /* units */
    byte elapsed;
    short offset;
    bit slow;
    bit second;          /* the second key was verified since the grant */
    Call calls[CALLS]
};

byte cells[WINDOW];      /* in the store: units by age */
byte truth[WINDOW];      /* for H1: admissions by true age */
Lease leases[LEASES];
Process processes[PROCESSES];
bit revoked;             /* the second key, in the store */
bit waiting, answered;   /* the change */
byte patience;           /* ticks until it is answered at the latest, by the clock of its process */
bit hasty;               /* that clock has run ahead by a tick */
byte forward = LONG_AGO; /* true age of the last step forward of the store's clock */

#define CALL processes[p].calls[c]

/* Scratch variables of single steps, 0 between them. */
byte h, i, j, k, m, sum, out;

inline wipe() { h = 0; i = 0; j = 0; k = 0; m = 0; sum = 0; out = 0 }

#ifdef CHECK_H1
inline admit_truly() {
    truth[0]++;
    sum = 0;
    for (i : 0 .. WINDOW - 1) { sum = sum + truth[i] }
    /* A step forward of the store's clock admits at most the limit once more (W11). */
    assert(sum <= LIMIT || (forward < LONG_AGO && sum <= 2 * LIMIT))
}
#else
#define admit_truly() skip
#endif

inline forget_held(p) {
    processes[p].lease = NONE;
    processes[p].left = 0; processes[p].elapsed = 0; processes[p].offset = 0;
    processes[p].slow = 0;
#ifndef KEYS_KEPT
    processes[p].second = 0
#endif
}

inline forget_call(p, c) {
    CALL.state = IDLE;
    CALL.lost = 0; CALL.second = 0;
    CALL.settles = NONE; CALL.asks = NONE; CALL.holding = NONE;
    CALL.elapsed = 0; CALL.offset = 0; CALL.slow = 0;
    CALL.verified = 0; CALL.granted = 0
}

#ifdef SETTLED_TWICE
#define settles_nothing(lease) false
#else
#define settles_nothing(lease) (!leases[lease].out)
#endif

/* Find the leases that nothing refers to. What nothing reads is 0: equal states look equal. */
inline sweep() {
    for (i : 0 .. LEASES - 1) {
        h = leases[i].out || leases[i].closed || leases[i].lingers > 0;
        for (j : 0 .. PROCESSES - 1) {
            h = h || processes[j].lease == i;
            for (k : 0 .. CALLS - 1) {
                h = h || processes[j].calls[k].settles == i || processes[j].calls[k].asks == i || processes[j].calls[k].holding == i
            }
        }
        leases[i].known = h;
        if
        :: !h ->
            leases[i].changed = 0; leases[i].counted = 0; leases[i].used = 0;
            for (j : 0 .. SHARE - 1) { leases[i].stamp[j] = 0 }
        :: h && settles_nothing(i) ->
            for (j : 0 .. SHARE - 1) { leases[i].stamp[j] = 0 }
        :: else
        fi
    }
    wipe()
}

/* ---- The store ---- */

inline count(lease) {
    leases[lease].counted++;
    H7(leases[lease].counted == 1);
    leases[lease].out = 0;
    leases[lease].rest = 0
}

/* Its deadline was `age` ticks ago: each unit counts as used at the deadline. */
inline expire(lease, age) {
    count(lease);
#ifndef EXPIRED_UNITS_DROPPED
    if
    :: age < WINDOW -> cells[age] = cells[age] + leases[lease].units
    :: else
    fi;
#endif
    leases[lease].units = 0;
    leases[lease].lingers = (answered -> 0 : LINGER);
    leases[lease].awaited = leases[lease].awaited && LINGER > 0
}

/* Each used unit counts at its stamp, clamped to the present. The others are free at once. */
inline settle(lease) {
    count(lease);
    for (m : 0 .. SHARE - 1) {
        if
        :: m < leases[lease].used && leases[lease].stamp[m] < WINDOW ->
            h = (leases[lease].stamp[m] > 0 -> leases[lease].stamp[m] : 0);
            cells[h]++
        :: else
        fi
    }
    leases[lease].units = 0
}

inline sum_up() {
    sum = 0; out = 0;
    for (i : 0 .. WINDOW - 1) { sum = sum + cells[i] }
    for (i : 0 .. LEASES - 1) { out = out + leases[i].units }
}

inline serve(p, c) {
    d_step {
        CALL.state = ANSWERED;
        if
        :: CALL.second && revoked
        :: else ->
            CALL.verified = 1;
            if
            :: CALL.settles != NONE ->
#ifdef SETTLED_TWICE
                settle(CALL.settles);
#else
                if
                :: leases[CALL.settles].out -> settle(CALL.settles)
                :: else
                fi;
#endif
                leases[CALL.settles].lingers = 0;
                leases[CALL.settles].awaited = 0
            :: else
            fi;
            sum_up();
#ifdef LEASES_NOT_SUMMED
            out = 0;
#endif
            if
            :: sum + out < LIMIT ->
                cells[0]++;
                admit_truly();
                sum_up();
                /* What a grant may have at most; 0 for a call that is refused or does not ask. */
                room = (CALL.asks != NONE -> SHARE - out : 0);
#ifndef GRANT_BEYOND_THE_LIMIT
                room = (LIMIT - sum - out < room -> LIMIT - sum - out : room)
#endif
            :: else
            fi
        fi
    };
    if
    :: room >= 1 -> grant(p, c, 1)
    :: room >= SHARE && SHARE > 1 -> grant(p, c, SHARE)
    :: true
    fi;
    d_step { room = 0; sweep() }
}

inline grant(p, c, number) {
    d_step {
        CALL.granted = number;
        CALL.offset = (CALL.lost || CALL.elapsed == LAST_USE -> 0 : - CALL.elapsed);
        leases[CALL.asks].out = 1;
        leases[CALL.asks].units = number;
        leases[CALL.asks].rest = SPAN
    }
}

/* ---- A process, and the way of its calls ---- */

/* Whether an answer about a key allows local admissions of it from the lease that is held. */
#ifdef KEYS_KEPT
#define verifies_for_lease(p, c) true
#elif defined(EARLIER_CALLS_VERIFY)
#define verifies_for_lease(p, c) (processes[p].lease != NONE)
#else
#define verifies_for_lease(p, c) (processes[p].lease != NONE && CALL.holding == processes[p].lease)
#endif

inline receive(p, c) {
    d_step {
        if
        :: CALL.settles != NONE && CALL.verified -> leases[CALL.settles].closed = 0
        :: else
        fi;
        if
        :: CALL.granted && CALL.elapsed < LAST_USE && processes[p].lease == NONE ->
            processes[p].lease = CALL.asks;
            processes[p].left = CALL.granted;
#ifdef ELAPSED_FROM_REPLY
            processes[p].offset = CALL.offset + CALL.elapsed;
#else
            processes[p].elapsed = CALL.elapsed;
            processes[p].offset = CALL.offset;
            processes[p].slow = CALL.slow;
#endif
#ifdef KEYS_KEPT
            processes[p].second = processes[p].second || CALL.second
#else
            processes[p].second = CALL.second
#endif
        :: else ->
            if
            :: CALL.granted -> leases[CALL.asks].closed = 1
            :: else
            fi;
            if
            :: CALL.verified && CALL.second && verifies_for_lease(p, c) -> processes[p].second = 1
            :: else
            fi
        fi;
        forget_call(p, c);
        sweep()
    }
}

inline close(p) {
    leases[processes[p].lease].closed = 1;
    forget_held(p)
}

inline use(p) {
    leases[processes[p].lease].used++;
    H7(!leases[processes[p].lease].out || leases[processes[p].lease].used <= leases[processes[p].lease].units);
    END(leases[processes[p].lease].out);
    W13(!(answered && leases[processes[p].lease].changed));
    if
    :: leases[processes[p].lease].used <= SHARE ->
#ifdef STAMPS_EARLY
        leases[processes[p].lease].stamp[leases[processes[p].lease].used - 1] = processes[p].offset + processes[p].elapsed;
#elif defined(STAMPS_WITHOUT_MARGIN)
        leases[processes[p].lease].stamp[leases[processes[p].lease].used - 1] = processes[p].offset;
#else
        leases[processes[p].lease].stamp[leases[processes[p].lease].used - 1] = processes[p].offset - MARGIN;
#endif
    :: else
    fi;
    admit_truly();
    processes[p].left--;
    if
    :: processes[p].left == 0 -> close(p)
    :: else
    fi
}

inline lose(p, c) {
    CALL.lost = 1;
    CALL.elapsed = 0; CALL.offset = 0; CALL.slow = 0
}

/* Whether another call of the process asks for a lease already. */
#if CALLS == 1
#define asking(p) false
#else
#define asks_now(call) (call.state != IDLE && !call.lost && call.asks != NONE)
#define asking(p) (asks_now(processes[p].calls[0]) || asks_now(processes[p].calls[1]))
#endif

proctype Network(byte p, c) {
    short room;
    byte settles = NONE, asks = NONE;
    bit second;
end:
    do
    :: atomic { CALL.state == IDLE ->
        if
        :: second = 0
#ifdef CHANGE
        :: second = 1
#endif
        fi;
        if
        :: true
        :: leases[p].closed -> settles = p
#if EACH == 2
        :: leases[PROCESSES + p].closed -> settles = PROCESSES + p
#endif
#ifdef SETTLED_BEFORE_CLOSED
        :: processes[p].lease != NONE -> settles = processes[p].lease
#endif
        fi;
        if
        :: true
        :: processes[p].lease == NONE && !asking(p) && !leases[p].known -> asks = p
#if EACH == 2
        :: processes[p].lease == NONE && !asking(p) && leases[p].known && !leases[PROCESSES + p].known -> asks = PROCESSES + p
#endif
        fi;
        d_step {
            CALL.state = SENT;
            CALL.second = second; CALL.settles = settles; CALL.asks = asks;
            CALL.holding = (second -> processes[p].lease : NONE);
            second = 0; settles = NONE; asks = NONE;
            sweep()
        } }
    :: atomic { CALL.state == SENT -> serve(p, c) }
    :: atomic { CALL.state == ANSWERED && !CALL.lost -> receive(p, c) }
    :: d_step { CALL.state != IDLE && CALL.lost -> forget_call(p, c); sweep() }
    :: d_step { CALL.state != IDLE && !CALL.lost -> lose(p, c) }
       /* It may settle what it has never got. */
    :: d_step { CALL.state != IDLE && !CALL.lost && CALL.asks != NONE ->
        leases[CALL.asks].closed = 1; lose(p, c) }
    od
}

proctype Worker(byte p) {
end:
    do
    :: d_step { processes[p].lease != NONE -> use(p); sweep() }
#ifdef CHANGE
    :: d_step { processes[p].lease != NONE && processes[p].second -> K4(!answered); use(p); sweep() }
#endif
    :: d_step { processes[p].lease != NONE -> close(p); sweep() }
       /* It dies, and another starts in its place. */
    :: d_step { processes[p].lease != NONE || leases[p].closed || leases[LEASES - PROCESSES + p].closed ->
        forget_held(p);
        leases[p].closed = 0; leases[LEASES - PROCESSES + p].closed = 0;
        for (m : 0 .. CALLS - 1) {
            if
            :: processes[p].calls[m].state != IDLE -> lose(p, m)
            :: else
            fi
        }
        sweep() }
#ifdef CHILD_KEEPS_LEASE
    :: d_step { processes[p].lease != NONE && processes[1 - p].lease == NONE ->
        processes[1 - p].lease = processes[p].lease;
        processes[1 - p].left = processes[p].left;
        processes[1 - p].elapsed = processes[p].elapsed;
        processes[1 - p].offset = processes[p].offset;
        processes[1 - p].slow = processes[p].slow;
        processes[1 - p].second = processes[p].second }
#endif
    od
}

/* ---- Revoking the second key, or changing the plan ---- */

inline mark() {
    d_step {
        revoked = 1;
        for (i : 0 .. LEASES - 1) { leases[i].changed = leases[i].out || leases[i].lingers > 0 }
        wipe()
    }
}

inline read_leases() {
    d_step {
        waiting = 1;
        for (i : 0 .. LEASES - 1) {
            leases[i].awaited = leases[i].out || leases[i].lingers > 0;
            patience = (leases[i].awaited -> SPAN + SLACK : patience)
        }
        wipe()
    }
}

#ifdef NO_WAIT
#define may_answer true
#elif LEASES == 1
#define may_answer (patience == 0 || !leases[0].awaited)
#elif LEASES == 2
#define may_answer (patience == 0 || !(leases[0].awaited || leases[1].awaited))
#else
#define may_answer (patience == 0 || !(leases[0].awaited || leases[1].awaited || leases[2].awaited || leases[3].awaited))
#endif

proctype Change() {
#ifdef LEASES_READ_BEFORE_MARK
    read_leases();
    mark();
#else
    mark();
    read_leases();
#endif
    d_step {
        may_answer ->
        answered = 1;
        waiting = 0; hasty = 0; patience = 0;
        for (i : 0 .. LEASES - 1) { leases[i].awaited = 0; leases[i].lingers = 0 }
        sweep()
    }
}

/* ---- Clocks ---- */

#define runs(call) (call.state != IDLE && !call.lost && call.asks != NONE)
#ifdef CLOCK_STOPS
#define may_lag(p) true
#elif CALLS == 1
#define may_lag(p) (!processes[p].slow && !processes[p].calls[0].slow && (processes[p].lease != NONE || runs(processes[p].calls[0])))
#else
#define may_lag(p) (!processes[p].slow && !processes[p].calls[0].slow && !processes[p].calls[1].slow && \
    (processes[p].lease != NONE || runs(processes[p].calls[0]) || runs(processes[p].calls[1])))
#endif

/* One tick of a clock that measures what has elapsed; `late`: it has missed this one. */
#define advance(one, late) if :: late -> one.offset++; one.slow = 1 :: else -> one.elapsed++ fi

/* The store's clock moves on by a tick: in time, or ahead of it. */
inline store_ticks() {
    for (i : 1 .. WINDOW - 1) { cells[WINDOW - i] = cells[WINDOW - i - 1] }
    cells[0] = 0;
    for (i : 0 .. LEASES - 1) {
        for (j : 0 .. SHARE - 1) {
            if
            :: j < leases[i].used && leases[i].stamp[j] < WINDOW -> leases[i].stamp[j]++
            :: else
            fi
        }
        if
        :: leases[i].out ->
            leases[i].rest--;
            if
            :: leases[i].rest == 0 -> expire(i, 0)
            :: else
            fi
        :: !leases[i].out && leases[i].lingers > 0 ->
            leases[i].lingers--;
            leases[i].awaited = leases[i].awaited && leases[i].lingers > 0
        :: else
        fi
    }
}

/* Below, a stamp is ahead of the store's clock for longer than its lease can last: settling clamps
 * it. Above, it counts no more. */
#define bounded(offset) ((offset) < -SPAN -> -SPAN : ((offset) > WINDOW + MARGIN -> WINDOW + MARGIN : (offset)))

/* Set the offsets of all grants that a process knows or may get to know. */
inline shift_offsets(by) {
    for (i : 0 .. PROCESSES - 1) {
        if
        :: processes[i].lease != NONE -> processes[i].offset = bounded(processes[i].offset + by)
        :: else
        fi;
        for (j : 0 .. CALLS - 1) {
            if
            :: processes[i].calls[j].granted && !processes[i].calls[j].lost && processes[i].calls[j].elapsed < LAST_USE ->
                processes[i].calls[j].offset = bounded(processes[i].calls[j].offset + by)
            :: else
            fi
        }
    }
}
proctype Clock() {
    bit late[PROCESSES], ahead;
    byte size;
end:
    do
    :: atomic {
        if
        :: true
        :: may_lag(0) -> late[0] = 1
        fi;
#if PROCESSES == 2
        if
        :: true
        :: may_lag(1) -> late[1] = 1
        fi;
#endif
        if
        :: true
        :: waiting && patience > 1 && !hasty -> ahead = 1
        fi;
        d_step {
            for (i : 1 .. WINDOW - 1) { truth[WINDOW - i] = truth[WINDOW - i - 1] }
            truth[0] = 0;
            forward = (forward < LONG_AGO -> forward + 1 : LONG_AGO);
            store_ticks();
            for (i : 0 .. PROCESSES - 1) {
                if
                :: processes[i].lease != NONE ->
                    advance(processes[i], late[i]);
                    if
                    :: processes[i].elapsed >= LAST_USE -> close(i)
                    :: else
                    fi
                :: else
                fi;
                for (j : 0 .. CALLS - 1) {
                    if
                    :: runs(processes[i].calls[j]) && processes[i].calls[j].elapsed < LAST_USE ->
                        advance(processes[i].calls[j], late[i]);
                        if
                        :: processes[i].calls[j].elapsed == LAST_USE ->
                            processes[i].calls[j].offset = 0; processes[i].calls[j].slow = 0
                        :: !processes[i].calls[j].granted -> processes[i].calls[j].offset = 0
                        :: else
                        fi
                    :: else
                    fi
                };
                late[i] = 0
            }
            if
            :: patience > 0 -> patience = patience - 1 - ahead; hasty = hasty || ahead
            :: else
            fi;
            ahead = 0;
            sweep()
        } }
#ifdef BACK
       /* The store's clock is set back: hits move to the present, and no rest exceeds the span. */
    :: d_step {
        cells[0] = cells[0] + cells[1];
        for (i : 2 .. WINDOW - 1) { cells[i - 1] = cells[i] }
        cells[WINDOW - 1] = 0;
        for (i : 0 .. LEASES - 1) {
            leases[i].rest = (leases[i].out && leases[i].rest < SPAN -> leases[i].rest + 1 : leases[i].rest);
            leases[i].lingers = (leases[i].lingers > 0 && leases[i].lingers < SPAN + LINGER -> leases[i].lingers + 1 : leases[i].lingers);
            for (j : 0 .. SHARE - 1) {
                if
                :: j < leases[i].used && leases[i].stamp[j] > -SPAN - MARGIN -> leases[i].stamp[j]--
                :: else
                fi
            }
        }
        shift_offsets(-1);
        wipe() }
#endif
#ifdef FORWARD
    :: atomic { forward == LONG_AGO ->
        select (size : 1 .. STEP);
        d_step {
            do
            :: size > 0 -> store_ticks(); shift_offsets(1); size--
            :: else -> break
            od;
            forward = 0;
            sweep()
        } }
#endif
    od
}

init {
    atomic {
        run Clock();
        run Worker(0);
        run Network(0, 0);
#if CALLS == 2
        run Network(0, 1);
#endif
#if PROCESSES == 2
        run Worker(1);
        run Network(1, 0);
#if CALLS == 2
        run Network(1, 1);
#endif
#endif
#ifdef CHANGE
        run Change();
#endif
    }
}
