// Package fake is a CRI runtime without processes: sandboxes and containers are entries in memory that
// start, run, exit and obey signals as annotations of their pod say. Controller tests and simulated clusters
// of thousands of nodes run on it.
//
// Guarantees: it speaks CRI v1 (both services, with container events); it needs no goroutine while nothing
// happens (timers only) and little memory per container; it runs on package time, so that in a
// testing/synctest bubble hours pass at once; StopContainer and StopPodSandbox return only when what they stop
// has "exited", as the node agent requires of every runtime (spec TERM-4).
//
// A pod's annotations choose how its containers behave; a suffix ".NAME" limits one to the container NAME:
//
//	fake.monoplane.dev/start-delay: 2s   StartContainer takes that long
//	fake.monoplane.dev/exit-after: 5s    the process exits by itself that long after its start
//	fake.monoplane.dev/exit-code: "3"    with this code (0)
//	fake.monoplane.dev/stop-after: 1s    the process exits that long after TERM (at once)
//	fake.monoplane.dev/stop-code: "0"    with this code (143)
//	fake.monoplane.dev/ignore-term: "true"  TERM does nothing; only KILL ends it (137)
//	fake.monoplane.dev/pull-error: text    the image cannot be pulled
//	fake.monoplane.dev/create-error: text  CreateContainer fails
//	fake.monoplane.dev/start-error: text   StartContainer fails, as for a command that does not exist
//	fake.monoplane.dev/sandbox-error: text RunPodSandbox fails (no suffix)
//	fake.monoplane.dev/update-delay: 2s  UpdateContainerResources takes that long
//	fake.monoplane.dev/update-error: text  UpdateContainerResources fails
//	fake.monoplane.dev/cpu: 250m         how much cpu the container uses from its start to its end
//	fake.monoplane.dev/memory: 64Mi      how much memory; of containers that have neither Config tells, or nothing does
//	fake.monoplane.dev/log: text           one line that is written to the container's log file at start
//
// Commands that are executed in a container (ExecSync), such as those of probes and hooks, end as annotations say,
// too. Their suffix is the container's NAME or the command itself, its words joined by "-":
//
//	fake.monoplane.dev/exec-delay: 2s          a command takes that long (no time)
//	fake.monoplane.dev/exec-code: "3"          it exits with this code (0)
//	fake.monoplane.dev/exec-fails-until: 20s   it exits with 1 until so long after the container's start
//	fake.monoplane.dev/exec-fails-after: 1m    it exits with 1 from so long after the container's start on
//	fake.monoplane.dev/exec-output: text       what it writes when it fails
//
// What runs survives its process by Save and Restore. After a crash it is gone, as after a reboot of the machine.
//
// It does not isolate, execute what a command says, or measure.
package fake
