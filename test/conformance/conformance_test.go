package conformance

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	_ "k8s.io/client-go/plugin/pkg/client/auth" // Credential plugins, as in the program.
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"

	"monoplane.dev/test/conformance/resident"
)

// TestMain runs the tests, or commands of kubectl in the processes that they start.
func TestMain(m *testing.M) {
	resident.Serve(runKubectl)
	os.Exit(m.Run())
}

var (
	golden = flag.String("golden", "", "program of tools/kubernetes: write what commands print against it to the scripts")
	accept = flag.Bool("accept", false,
		"write what commands print against Monoplane to the entries in differences.txt, and to the scripts in host")
	data   = flag.String("data", "testdata", "folder of the scripts; a copy where kubectl is another, in its words")
	client = flag.String("client", "",
		"folder of the kubectl that the scripts run, a process each; empty for the one in bin, in processes that stay")
	helm = flag.Bool("helm", false, "run the scripts with Helm, which make helm builds")
	only = flag.String("only", "", "run only the scripts that match this pattern of names")
)

// kubernetesVersion is what Monoplane is compared with.
const kubernetesVersion = "v1.36.3"

// differencesFile is the list of what Monoplane prints on purpose.
func differencesFile() string { return filepath.Join(*data, "differences.txt") }

// Every verb of kubectl prints what it prints against Kubernetes.
// spec: CLI-1, OBJ-1, OBJ-2, OBJ-3, OBJ-7, OBJ-9
func TestConformance(t *testing.T) {
	known, err := differences(differencesFile())
	if err != nil {
		t.Fatal(err)
	}
	r := newRunner(t, startServer)
	r.known, r.seen = known, make([]bool, len(known))
	t.Run("together", func(t *testing.T) { r.scripts(t, scripts(t, "scripts"), true) })
	t.Run("alone", func(t *testing.T) { r.scripts(t, scripts(t, "scripts/alone"), false) })
	if *accept {
		r.accept(t)
	}
}

// What comes of streams on a node whose containers are real processes: exec, attach, cp, port-forward, logs, debug and
// run. Their outputs in the scripts are stated, not written by `make golden`: Kubernetes' nodes are imitated there.
// spec: CLI-1, CTR-8, CTR-9
func TestConformanceOfStreams(t *testing.T) {
	if *golden != "" {
		t.Skip("Kubernetes' nodes are imitated")
	}
	r := newRunner(t, startHost)
	r.stated = true
	r.scripts(t, scripts(t, "scripts/host"), true)
}

// Helm installs, upgrades, rolls back, tests and uninstalls as it does with Kubernetes. spec: CLI-1, OBJ-9
func TestHelm(t *testing.T) {
	if !*helm {
		t.Skip("run by make charts")
	}
	r := newRunner(t, startServer)
	r.scripts(t, scripts(t, "scripts/helm"), true)
}

// scripts returns the paths of the scripts in a folder.
func scripts(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(*data, dir, "*.txt"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts in %s: %v", dir, err)
	}
	return paths
}

// newRunner starts a server, and returns what runs scripts against it.
func newRunner(t *testing.T, start func(*testing.T) (*server, string)) *runner {
	t.Helper()
	s, bin := start(t)
	r := &runner{server: s, bin: bin, kubectl: filepath.Join(bin, "kubectl")}
	switch {
	case *client != "":
		var err error
		if r.kubectl, err = filepath.Abs(filepath.Join(*client, "kubectl")); err != nil {
			t.Fatal(err)
		}
	case *golden == "":
		r.keepKubectl(t)
	}
	version, err := exec.CommandContext(t.Context(), filepath.Join(bin, "kubectl"), "--kubeconfig", s.kubeconfig,
		"get", "nodes", "-o", "jsonpath={.items[0].status.nodeInfo.kubeletVersion}").Output()
	if err != nil {
		t.Fatal(err)
	}
	r.version = string(version)
	return r
}

// keepKubectl has processes of kubectl stay until the end of the test. Two scripts at once have a pipe of two, and one
// in the background.
func (r *runner) keepKubectl(t *testing.T) {
	t.Helper()
	const processes = 6
	ctx, cancel := context.WithCancel(t.Context())
	socket, wait, err := resident.Start(ctx, t.TempDir(), processes, r.environment())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		wait()
	})
	r.env = []string{resident.Socket + "=" + socket, resident.Program + "=" + r.kubectl}
	r.kubectl = filepath.Join(r.bin, "resident", "kubectl")
}

// runKubectl is the main function of the unmodified kubectl (see tools/kubectl). Where that exits, this returns, and
// leaves the goroutine that would have ended the process where it is.
func runKubectl() (code int) {
	exits := make(chan int)
	util.BehaviorOnFatal(func(message string, code int) {
		if message != "" {
			fmt.Fprintln(os.Stderr, strings.TrimSuffix(message, "\n"))
		}
		exits <- code
		select {}
	})
	go func() {
		if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
			util.CheckErr(err)
		}
		exits <- 0
	}()
	return <-exits
}

// startServer starts Monoplane, or Kubernetes if its outputs are to be written, until the end of the test. It returns
// the folder of programs, too.
func startServer(t *testing.T) (s *server, bin string) {
	t.Helper()
	return startWith(t, func(bin, dir string) (*server, error) {
		if *golden != "" {
			return startKubernetes(t.Context(), *golden, dir)
		}
		return startMonoplane(filepath.Join(bin, "monoplane"), dir, "--runtime", "fake", "--nodes", "3",
			"--fake-finish-after", "0s") // as the nodes beside Kubernetes have it
	})
}

// startHost is startServer with one node, whose containers are processes of the machine.
func startHost(t *testing.T) (s *server, bin string) {
	t.Helper()
	return startWith(t, func(bin, dir string) (*server, error) {
		return startMonoplane(filepath.Join(bin, "monoplane"), dir, "--runtime", "host")
	})
}

func startWith(t *testing.T, start func(bin, dir string) (*server, error)) (s *server, bin string) {
	t.Helper()
	bin, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"kubectl", "resident/kubectl", "monoplane"} {
		if _, err := os.Stat(filepath.Join(bin, program)); err != nil {
			t.Fatalf("%v; run: make build kubectl", err)
		}
	}
	// Short, since the path of the kubelets' sockets is in it.
	dir, err := os.MkdirTemp("", "mp-conformance-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if s, err = start(bin, dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	return s, bin
}

// runner runs scripts against one server.
type runner struct {
	server  *server
	bin     string // The folder of programs.
	kubectl string // The path of kubectl, or of what asks a process that stays.
	env     []string
	version string // of the nodes
	stated  bool   // the outputs in the scripts are not Kubernetes', so that -accept may write them
	known   []difference
	// Invariant: scripts write only the places of their own commands.
	seen []bool // which of known were met
}

func (r *runner) scripts(t *testing.T, paths []string, together bool) {
	t.Helper()
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".txt")
		if match, err := filepath.Match(*only, name); *only != "" && (err != nil || !match) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			if together {
				t.Parallel()
			}
			r.script(t, name, path)
			r.unmet(t, name)
		})
	}
}

// unmet reports the entries of a script that none of its commands needed.
func (r *runner) unmet(t *testing.T, script string) {
	t.Helper()
	for i, d := range r.known {
		if d.script == script && !r.seen[i] && *golden == "" {
			t.Errorf("%s: no command, or a second entry: %s", differencesFile(), d.command)
		}
	}
}

// script runs the commands of one file.
func (r *runner) script(t *testing.T, name, path string) {
	t.Helper()
	blocks, err := parse(path)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "files"), os.DirFS(filepath.Join(*data, "files"))); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	env := r.environment()
	kubeconfig, err := r.server.inNamespace(ctx, r.kubectl, dir, name, env)
	if err != nil {
		t.Fatal(err)
	}
	env = append(env, "KUBECONFIG="+kubeconfig)
	for i, b := range blocks {
		if b.command == "" {
			continue
		}
		got, err := r.run(ctx, filepath.Join(dir, "files"), env, b.command)
		if err != nil {
			t.Fatalf("%s: %v", b.command, err)
		}
		if r.writes() {
			blocks[i].output = got
			continue
		}
		r.compare(t, name, b, got)
	}
	if r.writes() {
		if err := os.WriteFile(path, []byte(render(blocks)), 0o644); err != nil { //nolint:gosec // A file of the repository.
			t.Fatal(err)
		}
	}
}

// environment is that of the scripts, which share it but for their kubeconfig.
func (r *runner) environment() []string {
	return environment(append([]string{"PATH=" + filepath.Dir(r.kubectl) + ":" + r.bin + ":" + os.Getenv("PATH"),
		// kubectl keeps what it discovers below HOME.
		"HOME=" + filepath.Dir(r.server.kubeconfig), "TZ=UTC", "LC_ALL=C"}, r.env...)...)
}

// writes says whether what commands print is written to the scripts.
func (r *runner) writes() bool { return *golden != "" || *accept && r.stated }

// run executes one command and returns what it prints, normalised, with its exit code below if that is not 0.
func (r *runner) run(ctx context.Context, dir string, env []string, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	bash := exec.CommandContext(ctx, "bash", "-c", command)
	bash.Dir, bash.Env, bash.WaitDelay = dir, env, time.Second
	out, err := bash.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return "", err
	}
	if ctx.Err() != nil {
		return "", fmt.Errorf("it did not end:\n%s", out)
	}
	text := string(out)
	if *golden == "" {
		text = toldVersion(text, r.version, kubernetesVersion)
	}
	got := Normal(text)
	if code := bash.ProcessState.ExitCode(); code != 0 {
		got += fmt.Sprintf("[%d]\n", code)
	}
	return got, nil
}

// compare checks an output against Kubernetes', or against Monoplane's own where that is meant to differ.
func (r *runner) compare(t *testing.T, script string, b block, got string) {
	t.Helper()
	i := slices.IndexFunc(r.known, func(d difference) bool { return d.script == script && d.command == b.command })
	switch {
	case i < 0 && got != b.output:
		t.Errorf("$ %s\n%s", b.command, diff(b.output, got))
	case i < 0:
	case r.seen[i]:
		// A command twice in a script: the entry is for both.
		fallthrough
	default:
		r.seen[i] = true
		if *accept {
			r.known[i].output = got
			return
		}
		if got == b.output {
			t.Errorf("$ %s\nprints what Kubernetes prints; remove it from %s", b.command, differencesFile())
		} else if got != r.known[i].output {
			t.Errorf("$ %s\n%s", b.command, diff(r.known[i].output, got))
		}
	}
}

// accept writes Monoplane's outputs to the list of differences.
func (r *runner) accept(t *testing.T) {
	t.Helper()
	blocks, err := parse(differencesFile())
	if err != nil {
		t.Fatal(err)
	}
	next := 0
	for i := range blocks {
		if blocks[i].command != "" {
			blocks[i].output = r.known[next].output
			next++
		}
	}
	if err := os.WriteFile(differencesFile(), []byte(render(blocks)), 0o644); err != nil { //nolint:gosec // As above.
		t.Fatal(err)
	}
}

// diff shows two outputs line by line: what only the wanted has after "-", what only the other has after "+".
func diff(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	// common[i][j] is the length of the longest common subsequence of a[i:] and b[j:].
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var out []string
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			out = append(out, "  "+a[i])
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			out = append(out, "- "+a[i])
			i++
		default:
			out = append(out, "+ "+b[j])
			j++
		}
	}
	return strings.Join(out, "\n")
}
