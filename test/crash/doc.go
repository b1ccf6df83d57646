// Package crash kills the whole server with SIGKILL at random points while pods are created and deleted, and
// then checks what must hold whatever the moment was: every acknowledged write is there, no process of a
// vanished pod runs, no pod name has two running instances, every deletion ends, and no process got less than
// its grace. The pods are real processes: this package's test binary itself, which writes down what happens to
// it.
//
// A quick round runs with the other tests; `make crash` runs hundreds. A failing run prints its seed;
// MONOPLANE_CRASH_SEED repeats the choices that it made (not the machine's timing).
package crash
