package host

import (
	"bufio"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// Without a cgroup, a container has used what its first process has, and all that descends from it, ended or not.
// What was told once is not taken back.
func TestUsageOfProcesses(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "it starts nothing")
	const work = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; "
	cmd := exec.Command("sh", "-c", "( "+work+" ) & wait; sleep 1000 & echo worked; exec sleep 1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	}
	t.Cleanup(end)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(line, err)
	}
	var used ofProcesses
	cpu, memory := used.read(cmd.Process.Pid)
	if cpu < int64(10*time.Millisecond) || cpu > int64(time.Hour) || memory < 4096 || memory > 1<<30 {
		t.Errorf("it has used %v, and has %d bytes", time.Duration(cpu), memory)
	}
	used.cpu += int64(time.Hour)
	if again, _ := used.read(cmd.Process.Pid); again < cpu+int64(time.Hour) {
		t.Errorf("%v after %v", time.Duration(again), time.Duration(cpu)+time.Hour)
	}
	end()
	if cpu, memory := used.read(cmd.Process.Pid); cpu >= 0 || memory >= 0 {
		t.Errorf("after its end: %v, %d bytes", time.Duration(cpu), memory)
	}
}
