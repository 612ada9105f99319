// SPDX-License-Identifier: BSL-1.0
// A model for the checker SPIN: a core goes to sleep while others hand work to it. SPIN tries every order of the steps of this core, two
// senders, a card, a device and the core's alarm. Comments name the kernel's statements for a step. kernel/wakeup_test.py checks that no
// WAY of sleeping loses an event, and that SPIN finds a lost event when a rule of the code is broken (BREAK).
//
//   spin -a -DWAY=MWAIT kernel/wakeup.pml && cc -o pan pan.c && ./pan
//
// Statements are atomic and in order here. In the code the accesses that need it are sequentially consistent: those of the wake word, the
// store that publishes work in a queue, and the consumer's load of it. An interrupt between STI and CLI is one step,
// because nothing else runs on that core meanwhile. A write after MONITOR ends MWAIT; a pending or later interrupt ends HLT and MWAIT (SDM
// volume 2, HLT, MONITOR, MWAIT). STI enables interrupts only after the next instruction, so `sti; hlt` is one step.

#define HALT 1   // sti; hlt
#define MWAIT 2  // sti; mwait on the core's own word
#define WATCH 3  // sti; mwait on the card's next descriptor: the card writes it, other cores send an interrupt
#define POLL 4   // never asleep

#ifndef WAY
#define WAY HALT
#endif

#define NOTHING 0
#define LOOK_BEFORE_ANNOUNCEMENT 1  // the word is checked for requests before the core announces its sleep, not by the announcement
#define MONITOR_AFTER_LOOK 2      // MONITOR comes after the last check
#define REQUEST_BEFORE_WORK 3     // the sender sets its bit before it queues its work
#define NO_INTERRUPT 4            // a sender relies on its write to end HLT
#define NO_LINE_COMPARED 5        // WATCH: the core does not check for a write of the card between the check of the ring and MONITOR
#define LOOK_BEFORE_TAKING 6      // the core looks at its queues before it takes the bits that stand for them
#define AWAKE_FORGETS 7           // the core drops requests when it marks itself awake
#ifndef BREAK
#define BREAK NOTHING
#endif

#define SENDERS 2
#define CALLS 1   // of each sender; with interrupt and alarm there are four reasons to wake, so several sleeps follow each other
#define FRAMES 1  // of the card
#define RAISES 1  // of a device's interrupt

// WakeWord::word_: how the core sleeps, and the request that both senders use.
#define AWAKE 0
#define UNTIL_INTERRUPT 1
#define UNTIL_WRITE 2
byte sleeps = AWAKE;
bool request = false;
byte queued = 0;        // number of events in Core::remote and handed_over
byte ran = 0;           // number of these events that were run
byte line = 0;          // the descriptor that the card writes: number of frames that it has written
byte received = 0;      // number of frames that the driver took
bool raised = false;    // a device's interrupt is pending in the APIC
byte raises = 0;
bool marked = false;    // MarkedInterrupts
bool served = true;     // the callback has run since the device last raised its interrupt
bool call_raised = false;   // the wake-up vector is pending
bool timer_due = false;     // a timer is due
bool alarm_raised = false;  // the alarm's vector is pending
bool monitoring = false, written = false;  // the CPU's monitor: armed, and triggered
bool sleeping = false;      // the core is in HLT or MWAIT

// An interrupt window: open_interrupt_window, or the end of a sleep.
inline take_interrupts() {
  d_step {
    if :: raised -> raised = false; marked = true :: else fi;
    call_raised = false;
    alarm_raised = false
  }
}
#define PENDING (raised || call_raised || alarm_raised)

// EventLoop::run_iteration. A queue is looked at only if its bit was taken.
inline turn() {
  take_interrupts();
  d_step { if :: marked -> marked = false; served = true :: else fi };
#if BREAK == LOOK_BEFORE_TAKING
  d_step { if :: request -> ran = ran + queued; queued = 0 :: else fi };
  request = false;
#else
  d_step { taken = request; request = false };   // WakeWord::take
  d_step { if :: taken -> ran = ran + queued; queued = 0 :: else fi };
#endif
  timer_due = false
}

#if WAY == WATCH && BREAK != NO_LINE_COMPARED
#define LINE_AS_SEEN (line == seen)
#else
#define LINE_AS_SEEN true
#endif

#if WAY == MWAIT
#define HOW UNTIL_WRITE
#else
#define HOW UNTIL_INTERRUPT
#endif

inline arm_monitor() {
#if WAY == MWAIT || WAY == WATCH
  d_step { monitoring = true; written = false }
#else
  skip
#endif
}

active proctype core() {
  byte seen = 0;
  bool taken = false, announced = false, idle = false;
  do
  :: turn();
#if WAY == POLL
     // No interrupt is sent to a core that is not asleep: its next check finds the bit.
     end_poll: (request || PENDING || timer_due)
#else
#if WAY == WATCH
     seen = line;                                // EventLoop::watch_card: copies the line, then checks the ring once more
     d_step { received = line };
#endif
     // If a timer is due already, arm_alarm_for_sleep sets an alarm that is pending at once.
#if BREAK == LOOK_BEFORE_ANNOUNCEMENT
     announced = !request;
     if :: announced -> sleeps = HOW :: else fi;
#else
     d_step {                                    // WakeWord::announce_sleep
       announced = !request;
       if :: announced -> sleeps = HOW :: else fi
     };
#endif
     if
     :: announced ->
#if WAY == HALT
        idle = true;                             // a request after the announcement sends an interrupt
#else
#if BREAK != MONITOR_AFTER_LOOK
        arm_monitor();
#endif
        idle = !request || BREAK == LOOK_BEFORE_ANNOUNCEMENT;  // WakeWord::undisturbed
        if :: idle -> idle = LINE_AS_SEEN :: else fi;          // WatchedLine::changed
#if BREAK == MONITOR_AFTER_LOOK
        arm_monitor();
#endif
#endif
        if
        :: idle ->
           sleeping = true;
#if WAY == HALT
           end_halt: (PENDING);
#else
           end_mwait: (PENDING || written);
#endif
           d_step { sleeping = false };
           take_interrupts()
        :: else
        fi;
        monitoring = false;
        d_step {                                 // WakeWord::mark_awake
          sleeps = AWAKE;
#if BREAK == AWAKE_FORGETS
          request = false
#endif
        }
     :: else
     fi
#if WAY == WATCH
     ;
     d_step { received = line }                  // the idle hook: the driver checks its ring
#endif
#endif
  od
}

// WakeWord::request, and an interrupt if the change of the word does not end the sleep. The check and the change are two steps: the change
// is repeated if the word has changed meanwhile, so `was` is the value that the change replaced.
inline announce_work() {
  there = request;
  if
  :: there
  :: else ->
     d_step {
       there = request;
       was = sleeps;
       request = true;
       if :: WAY == MWAIT && monitoring -> written = true :: else fi
     };
#if BREAK != NO_INTERRUPT
     if :: !there && was == UNTIL_INTERRUPT -> call_raised = true :: else fi
#endif
  fi
}

active [SENDERS] proctype sender() {
  byte left = CALLS;
  byte was = AWAKE;
  bool there = false;
  do
  :: left > 0 ->
     left--;
#if BREAK == REQUEST_BEFORE_WORK
     announce_work();
     queued++
#else
     queued++;                                   // RemoteQueue::try_push, RemoteList::push
     announce_work()
#endif
  :: else -> break
  od
}

#if WAY == WATCH
// The interrupt of the card's queue is off.
active proctype card() {
  byte left = FRAMES;
  do
  :: left > 0 -> left--; d_step { line++; if :: monitoring -> written = true :: else fi }
  :: else -> break
  od
}
#endif

active proctype device() {
  do
  :: raises < RAISES -> d_step { raises++; served = false; raised = true }
  :: else -> break
  od
}

active proctype alarm() {
  d_step { timer_due = true; alarm_raised = true }
}

// When no process can take a step any more, no work may be left.
active proctype judge() {
  timeout -> assert(queued == 0 && ran == SENDERS * CALLS && served && !timer_due && (WAY != WATCH || received == line))
}
