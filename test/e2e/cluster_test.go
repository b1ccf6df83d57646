package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// cluster is a running `monoplane up`.
type cluster struct {
	program        string
	dir            string // --data-dir
	url            string // of the REST API
	stdout, stderr *capture
	proc           *os.Process
	exited         chan struct{} // closed once the process has ended and code is set
	code           int           // exit code, -1 after a signal
	// dialer connects clients of the REST API; nil where they reach it themselves.
	dialer dialer
}

// newCluster starts a cluster of the test's own in a new data directory.
func newCluster(t *testing.T, args ...string) *cluster {
	t.Helper()
	return startIn(t, shortDir(t), args...)
}

// shortDir returns a new directory, whose path is short enough for a user to have chosen it.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mp-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "data")
}

// startIn starts a cluster on dir. The test's end removes its pods and stops it, if it still runs.
func startIn(t *testing.T, dir string, args ...string) *cluster {
	t.Helper()
	c, err := start(binary(t, "monoplane"), dir, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.end(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("stderr of the cluster on %s ends with:\n%s", dir, c.stderr.tail(40))
		}
	})
	return c
}

// start runs `monoplane up` and waits until it says that it is ready. Without args that say otherwise, containers are
// processes of this machine.
func start(program, dir string, args ...string) (*cluster, error) {
	c := &cluster{program: program, dir: dir, stdout: &capture{}, stderr: &capture{}, exited: make(chan struct{})}
	args = upArgs(dir, args...)
	cmd := exec.Command(program, args...)
	cmd.Env = environment()
	cmd.Stdout, cmd.Stderr = c.stdout, c.stderr
	// A process group of its own, so that a Ctrl-C at the tests' terminal does not reach it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c.proc = cmd.Process
	go func() {
		_ = cmd.Wait() // Its exit code says the same.
		c.code = cmd.ProcessState.ExitCode()
		close(c.exited)
	}()
	err := poll(patience, func() (bool, string) {
		select {
		case <-c.exited:
			return true, ""
		default:
			return strings.Contains(c.stdout.String(), "Ctrl-C stops"), "stdout: " + c.stdout.String()
		}
	})
	m := regexp.MustCompile(`REST +(https://\S+)`).FindStringSubmatch(c.stdout.String())
	if err != nil || m == nil {
		_ = c.proc.Kill()
		return nil, fmt.Errorf("monoplane %s did not become ready: %v\n%s", strings.Join(args, " "), err, c.stderr)
	}
	c.url = m[1]
	return c, nil
}

// environment is that of the tests without the variables that change what is tested.
func environment(extra ...string) []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "MONOPLANE_") && !strings.HasPrefix(e, "KUBE") {
			env = append(env, e)
		}
	}
	return append(env, extra...)
}

func (c *cluster) kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

// signal sends a signal to the server.
func (c *cluster) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := c.proc.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// waitExit waits for the server's end and returns its exit code.
func (c *cluster) waitExit(t *testing.T) int {
	t.Helper()
	select {
	case <-c.exited:
		return c.code
	case <-time.After(patience):
		t.Fatalf("the server has not ended\n%s", c.stderr)
		return 0
	}
}

// kill ends the server as a crash would: SIGKILL, nothing cleaned up. Pods go on.
func (c *cluster) kill(t *testing.T) {
	t.Helper()
	c.signal(t, syscall.SIGKILL)
	c.waitExit(t)
}

// end removes the pods and stops the server with SIGTERM. It fails when a process of the cluster is left.
func (c *cluster) end() error { return c.endBy(syscall.SIGTERM) }

// endBy does so with the signal. What holds the network of pods of images goes with SIGINT only.
func (c *cluster) endBy(signal syscall.Signal) error {
	select {
	case <-c.exited:
		return c.left()
	default:
	}
	errs := []error{c.removePods()}
	errs = append(errs, c.proc.Signal(signal))
	select {
	case <-c.exited:
		if c.code != 0 {
			errs = append(errs, fmt.Errorf("the server ended with code %d after %s", c.code, signal))
		}
	case <-time.After(patience):
		errs = append(errs, fmt.Errorf("the server did not end on %s", signal), c.proc.Kill())
		<-c.exited
	}
	return errors.Join(append(errs, c.left())...)
}

// left says which processes of the cluster still run, and ends them.
func (c *cluster) left() error {
	var pids []int
	err := poll(patience, func() (bool, string) {
		pids = holders(c.dir)
		return len(pids) == 0, ""
	})
	if err == nil {
		return nil
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL) // It may have ended by now.
	}
	return fmt.Errorf("processes %v of the cluster on %s are left", pids, c.dir)
}

// removePods deletes all pods, with the shortest grace there is.
func (c *cluster) removePods() error {
	config, err := c.clientConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	one := int64(1)
	pods := client.CoreV1().Pods
	return poll(patience, func() (bool, string) {
		list, err := pods("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		var names []string
		for _, p := range list.Items {
			names = append(names, p.Namespace+"/"+p.Name)
			if len(p.Finalizers) > 0 {
				// Conflicts are tried again at the next look.
				_, _ = pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
					metav1.PatchOptions{})
			}
			_ = pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &one}) // The next look tells.
		}
		return len(names) == 0, "left: " + strings.Join(names, ", ")
	})
}

// withoutPodData waits until the agents have removed the volumes of all pods.
func (c *cluster) withoutPodData() error {
	return poll(patience, func() (bool, string) {
		left, err := filepath.Glob(filepath.Join(c.dir, "nodes", "*", "pods-data", "*"))
		return err == nil && len(left) == 0, fmt.Sprint(left, err)
	})
}

// clientConfig is what client-go makes of the kubeconfig, without client-side rate limits.
func (c *cluster) clientConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig())
	if err != nil {
		return nil, err
	}
	config.QPS, config.Dial = -1, c.dialer
	config.WarningHandler = rest.NoWarnings{} // they would be printed among the results
	return config, nil
}

func (c *cluster) config(t *testing.T) *rest.Config {
	t.Helper()
	config, err := c.clientConfig()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// client returns client-go's typed clients.
func (c *cluster) client(t *testing.T) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.config(t))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

var namespaces atomic.Int64

// namespace makes a namespace for one test. Its deletion, with all it holds, begins when the test ends.
func (c *cluster) namespace(t *testing.T) string {
	t.Helper()
	client := c.client(t).CoreV1().Namespaces()
	name := fmt.Sprintf("e2e-%d", namespaces.Add(1))
	_, err := client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The cluster may have been stopped by the test.
		_ = client.Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	return name
}
