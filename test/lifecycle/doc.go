// Package lifecycle tells what becomes of a pod on its node as scenarios that a person can read: a manifest, what
// happens to it, and what must be seen. The same files run on the runtime `fake` in virtual time (this package's
// test), and on `host`, containerd and `oci` with real processes (package e2e). What oci-user stands for is `oci`
// without root.
//
// A file of testdata is
//
//	# INIT-1: what it shows, the identifier of the specification first.
//	runtimes: fake host containerd oci oci-user    where it runs; everywhere when the line is missing
//	-- pod --
//	a manifest, whose containers have the command [act] and say in their args what they do
//	-- script --
//	what happens, one step a line; the pod has been created when it begins
//	-- expect --
//	what must have been seen at its end, one statement a line
//
// What a container does (program act, and its imitation on `fake`):
//
//	run 2s            it runs that long, and for ever without it
//	exit 3            then it ends with this code (0)
//	term 1s 4         on TERM it ends after 1 s with code 4; without it, at once with code 143
//	term ignore       nothing but KILL ends it
//	stop USR1         it does on this signal what it would do on TERM, and leaves this mark; TERM just ends it
//	show $NAME        it leaves the mark NAME=VALUE of a variable
//	show PATH         it leaves a mark for each line of a file
//	follow PATH       likewise, and again each time that the file has changed
//	say TEXT          it prints this
//	leave TEXT        it leaves this as its termination message
//	healthy 1s 3s     `act check`, the command of an exec probe, succeeds from 1 s to 3 s after the start; to the end
//	                  without the second time; all the time without the line
//
//	serve SERVED 1s 9s  it listens at its port, one that is free there, from 1 s to 9 s after the start, and answers
//	                  each request with 200, one for /mark/WORD with the mark WORD besides; not on containerd, whose
//	                  pods the node does not reach in the tests
//	serve SERVED 1s 9s grpc db  it listens there from 1 s on, and says by gRPC's health service that db, the name of a
//	                  service, is SERVING until 9 s and NOT_SERVING then
//	users             it leaves the mark USERS=N: so many users there are where it lives
//	terminal          it leaves the mark TERMINAL if it has one, as its input, output and controlling one; NO-TERMINAL
//	input             it reads its standard input, and leaves the mark INPUT-END when that is at its end
//	first             it leaves the mark FIRST if it is process 1 of those that it sees, NOT-FIRST if not
//	peer NAME         it leaves the mark SEES-NAME once it sees the process of the pod's container NAME
//	eat               it takes up to 256 MiB of memory as long as there is a file hungry beside its journal
//
// A process that finds another one of the same container at its start leaves the mark BESIDE, which no statement
// about marks forgives.
//
// A probe or hook runs `act check` or `act hook NAME [run 2s] [exit 1]`, which leaves the marks NAME and NAME-END.
// Both wait until the container has left its mark START, for a busy machine may run them before it.
//
// Steps:
//
//	until CONTAINER MARK [N]       the container has left the mark (for the N-th time)
//	until phase PHASE              the API has said so; likewise:
//	until condition TYPE STATUS
//	until state CONTAINER WORD     running, or the reason that it waits for or ended with
//	until restarts CONTAINER N
//	until gone                     the object was removed
//	until message CONTAINER TEXT   the message of what it waits for has the text in it
//	until event REASON [TEXT]      an event of the pod says so, with the text in its message
//	until resized                  what the pod asks for is in force, and nothing is said to be under way
//	resize CONTAINER cpu=20m ...   the container asks for that much, and is limited to it where it has limits
//	refused STEP                   the API answers the step with 403 Forbidden
//	debug NAME CONTAINER [WORDS,...]  kubectl debug: an ephemeral container joins the pod, with the image and program of
//	                               another container, and does what the words say
//	delete [SECONDS]               kubectl delete pod [--grace-period]
//	deadline SECONDS               kubectl patch pod, with a shorter activeDeadlineSeconds
//	label KEY=VALUE                kubectl label pod --overwrite
//	gate TYPE STATUS               a condition of this type is written to the pod's status
//	pass 2s                        time goes by
//	config NAME KEY=VALUE...       a ConfigMap is made or replaced
//	image CONTAINER [NAME]         kubectl set image, of an init container too; a good one without the name
//	now WHAT                       the world changes; Changes says how
//
// Statements:
//
//	marks CONTAINER: START TERM END(0)    exactly these marks, in this order
//	begins CONTAINER: START TERM START    these marks, and perhaps more: it may have been started again meanwhile
//	order: a.END(0) b.START               the first of these came before the second, and so on
//	phases: Pending Running Succeeded     the API said these in this order, but for some, and the last one last
//	condition Ready: False True False     likewise
//	exit CONTAINER: 143 Error             how the newest instance ended, as the status says
//	restarts CONTAINER: 1
//	message CONTAINER: TEXT               what it left when it ended
//	class: Burstable                      the pod's quality of service
//	has CONTAINER: cpu=20m memory=8Mi     requests in force, as the status says
//	events: Unhealthy Killing             events with these reasons were recorded
//	event Failed: no such file            one with this reason, and the text in its message
//	waited CONTAINER: REASON TEXT         it has waited for this reason, with the text in the message; likewise:
//	ended CONTAINER: REASON TEXT          it has ended for this reason, with the text in its exit code and message
//	apart: a.TERM b.TERM >= 1s            the time between two marks; a.TERM#2 is the second of them, pod.READY,
//	                                      pod.NOT-READY and pod.GONE are when the API has said so; an upper limit,
//	                                      with <=, counts in virtual time only: elsewhere the machine may be busy
//
// A step or statement for some of the runtimes, whose words differ, begins with their names:
//
//	on oci oci-user: waited main: RegistryUnavailable connection refused
//
// Files whose names begin with bad- show what becomes of bad input: Kubernetes' reason in status and event, a
// neighbour on the same node that goes on, and a recovery by itself once the cause is gone. Their manifests may have
// placeholders (Placeholders), of which the other files have SERVED only, and a line `needs: root` at the beginning.
package lifecycle
