// SPDX-License-Identifier: BSL-1.0
// The race between going idle and being called, for SPIN: every order of the steps of one core that lies down, two cores that hand it work,
// a card, and its own alarm. Each line says which statement of the kernel it stands for; kernel/wakeup_test.py checks the model for each
// WAY, and that it finds a lost call when a rule of the code is broken (BREAK).
//
//   spin -a -DWAY=MWAIT kernel/wakeup.pml && cc -o pan pan.c && ./pan
//
// Statements are atomic and in order here. In the code those that need it are sequentially consistent: `Core::asleep`, the queues' last
// store and the consumer's look, and the wake word. What an interrupt does between STI and CLI is one step, as nothing else of that core
// runs meanwhile. That MWAIT ends by a write after MONITOR, and HLT and MWAIT by an interrupt that is pending or comes, says the SDM
// (volume 2, HLT, MONITOR, MWAIT); that STI opens interrupts only after the next instruction is why `sti; hlt` is one step.

#define HALT 1   // sti; hlt
#define MWAIT 2  // sti; mwait on the core's own word
#define WATCH 3  // sti; mwait on the card's next descriptor: the card writes, others send an interrupt
#define POLL 4   // never asleep

#ifndef WAY
#define WAY HALT
#endif

#define NOTHING 0
#define LOOK_BEFORE_ANNOUNCEMENT 1  // the last look at the queues comes before the word says that the core lies down
#define MONITOR_AFTER_LOOK 2      // MONITOR comes after the last look
#define LOOK_AT_WORD_FIRST 3      // the sender looks whether the core sleeps before it queues its work
#define NO_INTERRUPT 4            // a sender's write is believed to end HLT
#define NO_LINE_COMPARED 5        // WATCH: what the card wrote between the look at the ring and MONITOR is not looked for
#ifndef BREAK
#define BREAK NOTHING
#endif

mtype = { awake, halted, dozing, woken };

#define SENDERS 2
#define CALLS 1   // of each: with interrupt and alarm that makes four reasons to wake, so several sleeps follow each other
#define FRAMES 1  // of the card
#define RAISES 1  // of a device's interrupt

bool asleep = false;    // Core::asleep
mtype word = awake;     // WakeWord::state_
byte queued = 0;        // Core::remote and handed_over: what lies there
byte ran = 0;           // how many of these were run
byte line = 0;          // the descriptor that the card writes: how many frames it has written
byte received = 0;      // and how many the driver took
bool raised = false;    // a device's interrupt is pending in the APIC
byte raises = 0;
bool marked = false;    // MarkedInterrupts
bool served = true;     // whether its callback ran since it was last raised
bool call_raised = false;   // the wake-up vector is pending
bool timer_due = false;     // a timer's moment has come
bool alarm_raised = false;  // the alarm's vector is pending
bool monitoring = false, written = false;  // the CPU's monitor: armed, and triggered
bool sleeping = false;      // the core is in HLT or MWAIT

// An interrupt window: open_interrupt_window, or what ends a sleep.
inline take_interrupts() {
  d_step {
    if :: raised -> raised = false; marked = true :: else fi;
    call_raised = false;
    alarm_raised = false
  }
}
#define PENDING (raised || call_raised || alarm_raised)

// EventLoop::turn
inline turn() {
  take_interrupts();
  d_step { if :: marked -> marked = false; served = true :: else fi };
  d_step { ran = ran + queued; queued = 0 };
  timer_due = false
}

#define IDLE (queued == 0 && !marked)  // EventLoop::still_idle
#if WAY == WATCH && BREAK != NO_LINE_COMPARED
#define LINE_AS_SEEN (line == seen)
#else
#define LINE_AS_SEEN true
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
  bool lies = false, idle = false;
  do
  :: turn();
#if WAY == POLL
     // Nothing is sent to a core that is not asleep: it sees what there is when it looks again.
     end_poll: (queued > 0 || PENDING || timer_due)
#else
#if WAY == WATCH
     seen = line;                                // EventLoop::watch_card: notes the line, then looks at the ring once more
     d_step { received = line };
#endif
     // A timer that is due already does not reach the sleep: arm_alarm_for_sleep sets an alarm that is pending at once.
     asleep = true;                              // EventLoop::sleep
#if BREAK == LOOK_BEFORE_ANNOUNCEMENT
     idle = IDLE;
#endif
     d_step {                                    // WakeWord::announce_sleep
       lies = (word == awake);
       if :: lies && WAY == MWAIT -> word = dozing
          :: lies && WAY != MWAIT -> word = halted
          :: else
       fi
     };
     if
     :: lies ->
#if BREAK != MONITOR_AFTER_LOOK
        arm_monitor();
#endif
#if BREAK != LOOK_BEFORE_ANNOUNCEMENT
        idle = (word != woken);                  // was_called
        if :: idle -> idle = IDLE && LINE_AS_SEEN :: else fi;  // still_idle
#endif
#if BREAK == MONITOR_AFTER_LOOK
        arm_monitor();
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
        fi
     :: else
     fi;
     monitoring = false;
     word = awake;                               // mark_awake
     asleep = false
#if WAY == WATCH
     ;
     d_step { received = line }                  // the idle hook: the driver's look at its ring
#endif
#endif
  od
}

// machine::wake: WakeWord::wake, and an interrupt if the write alone does not end the sleep
inline wake_machine() {
  d_step {
    was = word;
    word = woken;
    if :: WAY == MWAIT && monitoring -> written = true :: else fi
  };
#if BREAK != NO_INTERRUPT
  if :: was == halted -> call_raised = true :: else fi
#endif
}

active [SENDERS] proctype sender() {
  byte left = CALLS;
  mtype was = awake;
  bool slept = false;
  do
  :: left > 0 ->
     left--;
#if BREAK == LOOK_AT_WORD_FIRST
     slept = asleep;
     queued++;
#else
     queued++;                                   // RemoteQueue::try_push, RemoteList::push
     slept = asleep;                             // wake_if_asleep: the load ...
#endif
     if
     :: slept ->
        d_step { slept = asleep; asleep = false };  // ... and the exchange: one sender takes it upon himself
        if :: slept -> wake_machine() :: else fi
     :: else
     fi
  :: else -> break
  od
}

#if WAY == WATCH
// Its queue's interrupt is off.
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

// When nobody can take a step any more, nothing may be left undone.
active proctype judge() {
  timeout -> assert(queued == 0 && ran == SENDERS * CALLS && served && !timer_due && (WAY != WATCH || received == line))
}
