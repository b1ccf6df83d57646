package store

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/object"
)

// childDir tells the test binary to be the process that is killed, and where its data is.
const childDir = "MONOPLANE_STORE_TEST_DIR"

// runChild writes until it is killed, if this process is meant to. It says what it is about to do and what has been
// acknowledged: "begin KEY VALUE" and "done KEY VALUE", where an empty value is a deletion.
func runChild() bool {
	dir := os.Getenv(childDir)
	if dir == "" {
		return false
	}
	s, err := Open(context.Background(), fsyncConfig(dir))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				name, value := fmt.Sprintf("w%d-%d", w, i%20), fmt.Sprint(time.Now().UnixNano())
				if i%7 == 6 {
					value = ""
				}
				fmt.Printf("begin %s %s\n", name, value)
				if err := childWrite(s, name, value); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				fmt.Printf("done %s %s\n", name, value)
			}
		})
	}
	wg.Wait()
	return true
}

func childWrite(s *Store, name, value string) error {
	key := podKey("default", name)
	_, err := s.Mutate(context.Background(), key, func(live object.Object) (*Txn, error) {
		if value == "" {
			return &Txn{Ops: []Op{{Key: key}}}, nil
		}
		p := pod("default", name)
		p.Metadata.Labels = map[string]string{"v": value}
		return &Txn{Ops: []Op{{Key: key, Object: p}}}, nil
	})
	return err
}

// Whatever was acknowledged before a kill -9 is there afterwards, and nothing else.
// spec: DEL-13
func TestKill(t *testing.T) {
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	// possible holds for each key the values it may have now.
	possible := map[string][]string{}
	writes := 0
	for round := range rounds {
		lines := killed(t, dir, time.Duration(50+random.IntN(400))*time.Millisecond)
		for _, line := range lines {
			f := strings.SplitN(line, " ", 3)
			switch f[0] {
			case "begin":
				if _, known := possible[f[1]]; !known {
					possible[f[1]] = []string{""} // absent, until its first write is acknowledged
				}
				possible[f[1]] = append(possible[f[1]], f[2])
			case "done":
				possible[f[1]] = []string{f[2]}
				writes++
			}
		}
		s, err := Open(t.Context(), testConfig(dir))
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		found := map[string]string{}
		for _, o := range list(t, s, ListOptions{}).Objects {
			found[o.GetMetadata().GetName()] = o.(*corev1.Pod).Metadata.Labels["v"]
		}
		for name, values := range possible {
			ok := len(values) == 0
			for _, v := range values {
				ok = ok || found[name] == v
			}
			if !ok {
				t.Errorf("round %d: %s is %q, want one of %q", round, name, found[name], values)
			}
			possible[name] = []string{found[name]}
			delete(found, name)
		}
		if len(found) > 0 {
			t.Errorf("round %d: nobody wrote %v", round, found)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d acknowledged writes in %d rounds", writes, rounds)
	if writes == 0 {
		t.Error("nothing was written")
	}
}

// killed runs a child for a while after its first write and returns what it said.
func killed(t *testing.T, dir string, after time.Duration) []string {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(out)
	first, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("the child said nothing: %v, %s", err, stderr.String())
	}
	timer := time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	rest, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	text := first + string(rest)
	// A line that was cut off in the middle says nothing.
	text = text[:strings.LastIndexByte(text, '\n')]
	return strings.Split(text, "\n")
}
