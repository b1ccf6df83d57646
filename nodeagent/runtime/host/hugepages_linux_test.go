package host

import (
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	hugePage  = 2 << 20
	hugeCount = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
)

// hugeHelper writes to huge pages, as many as PAGES says, one after the other, and says how many it got. The kernel
// sends a signal to who touches more than the limit.
func hugeHelper() int {
	debug.SetPanicOnFault(true)
	pages, _ := strconv.Atoi(os.Getenv("PAGES"))
	for i := range pages {
		if err := touchHugePage(); err != nil {
			fmt.Println("refused after", i, err)
			return 3
		}
	}
	fmt.Println("got", pages)
	return 0
}

func touchHugePage() (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%v", v)
		}
	}()
	b, err := unix.Mmap(-1, 0, hugePage, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_HUGETLB)
	if err == nil {
		b[0] = 1
	}
	return err
}

// setAside has the kernel set more huge pages aside for the time of the test.
func setAside(t *testing.T, more int) {
	t.Helper()
	b, err := os.ReadFile(hugeCount)
	if err != nil {
		t.Skip("the kernel has no huge pages of 2 MiB: ", err)
	}
	was := strings.TrimSpace(string(b))
	n, err := strconv.Atoi(was)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(hugeCount, []byte(strconv.Itoa(n+more)), 0); err != nil {
		t.Skip("huge pages cannot be set aside: ", err)
	}
	t.Cleanup(func() { _ = os.WriteFile(hugeCount, []byte(was), 0) })
	if b, err = os.ReadFile(hugeCount); err != nil || strings.TrimSpace(string(b)) != strconv.Itoa(n+more) {
		t.Skipf("the kernel has set aside %s huge pages, not %d: %v", b, n+more, err)
	}
}

// A container gets the huge pages of its limit, and no more. spec: CTR-10
func TestHugePagesAreLimited(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	setAside(t, 4)
	sb := n.sandbox("huge")
	run := func(name string, pages int) *runtimeapi.ContainerStatus {
		config := containerConfig(name, testBinary(t))
		config.Envs = []*runtimeapi.KeyValue{{Key: helperVariable, Value: []byte("huge")},
			{Key: "PAGES", Value: []byte(strconv.Itoa(pages))}}
		config.Linux = &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{
			HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 2 * hugePage}, {PageSize: "1GB"}}}}
		id := n.create(sb, config)
		if w := n.warnings(id); strings.Contains(w, "huge pages") {
			t.Skip("no hugetlb controller here: ", w)
		}
		if err := n.start(id); err != nil {
			t.Fatal(err)
		}
		st := n.wait(id)
		t.Logf("%s: %s", name, n.logText(id))
		return st
	}
	if st := run("within", 2); st.GetExitCode() != 0 {
		t.Errorf("within its limit: %v", st)
	}
	if st := run("beyond", 3); st.GetExitCode() != 3 {
		t.Errorf("beyond its limit: %v", st)
	}
}
