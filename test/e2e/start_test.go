package e2e_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// result is what a monoplane command printed and returned.
type result struct {
	stdout, stderr string
	code           int
}

// monoplane runs a command to its end.
func monoplane(t *testing.T, env []string, args ...string) result {
	t.Helper()
	return runProgram(t, env, binary(t, "monoplane"), args...)
}

// runProgram runs what runs the monoplane program.
func runProgram(t *testing.T, env []string, program string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Env = &stdout, &stderr, environment(env...)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Fatalf("monoplane %s does not end\n%s%s", strings.Join(args, " "), &stdout, &stderr)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// refused checks that a command failed with one clear line that says all of want.
func refused(t *testing.T, r result, want ...string) {
	t.Helper()
	if r.code == 0 || r.code > 2 {
		t.Errorf("exit code %d, want 1", r.code)
	}
	if strings.Contains(r.stderr, "goroutine ") || strings.Contains(r.stderr, "panic") {
		t.Errorf("a stack trace:\n%s", r.stderr)
	}
	if r.stdout != "" {
		t.Errorf("stdout: %s", r.stdout)
	}
	if n := strings.Count(strings.TrimSpace(r.stderr), "\n") + 1; n != 1 {
		t.Errorf("%d lines on stderr, want one:\n%s", n, r.stderr)
	}
	for _, text := range want {
		if !strings.Contains(r.stderr, text) {
			t.Errorf("stderr does not say %q:\n%s", text, r.stderr)
		}
	}
}

// upArgs are those of `monoplane up` on free ports, with containers of image "host" unless more says otherwise.
func upArgs(dir string, more ...string) []string {
	return append([]string{"up", "--data-dir", dir, "--listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0",
		"--runtime", "host"}, more...)
}

const faultyScheduler = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {score: {enabled: [{name: Lottery}]}}
percentageOfNodes: 50
`

func TestBadSettings(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	parent := filepath.Dir(dir)
	file := func(name, text string) string {
		path := filepath.Join(parent, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tc := range []struct {
		name string
		env  []string
		args []string
		want []string
	}{
		{name: "unknown command", args: []string{"start"}, want: []string{`unknown command "start"`}},
		{name: "unknown subcommand", args: []string{"snapshot", "make"}, want: []string{`unknown command "make"`}},
		{name: "unknown flag", args: []string{"up", "--listn", "x"}, want: []string{"unknown flag: --listn"}},
		{name: "an argument too many", args: []string{"up", "now"}, want: []string{`"now"`}},
		{name: "bad number", args: upArgs(dir, "--nodes", "many"), want: []string{`"many"`, "--nodes"}},
		{name: "bad runtime", args: upArgs(dir, "--runtime", "docker"), want: []string{`"docker"`, `"auto" or "fake"`}},
		{name: "bad log level", args: upArgs(dir, "--log-level", "loud"), want: []string{"--log-level", `"loud"`}},
		{name: "nodes on the host runtime", args: upArgs(dir, "--nodes", "3"),
			want: []string{"3 nodes need the fake runtime"}},
		{name: "bad address", args: []string{"up", "--data-dir", dir, "--listen", "nowhere"}, want: []string{"nowhere"}},
		{name: "bad node name", args: upArgs(dir, "--node-name", "Bad_Name"), want: []string{"Bad_Name"}},
		{name: "reserved node label", args: upArgs(dir, "--node-labels", "kubernetes.io/a=b"),
			want: []string{`"kubernetes.io/a"`, "kubernetes.io/hostname"}},
		{name: "node label that is no pair", args: upArgs(dir, "--node-labels", "ssd"),
			want: []string{"--node-labels", "ssd"}},
		{name: "zones on the host runtime", args: upArgs(dir, "--zones", "3"),
			want: []string{"3 zones need the fake runtime"}},
		{name: "bad runtime endpoint", args: upArgs(dir, "--runtime-endpoint", "unix://"+parent+"/none.sock"),
			want: []string{"none.sock"}},
		{name: "unknown key in the file", args: upArgs(dir, "--config", file("unknown.yaml", "lisen: x\n")),
			want: []string{"unknown.yaml", `unknown setting "lisen"`, "listen"}},
		{name: "file that is no YAML", args: upArgs(dir, "--config", file("junk.yaml", "{{{")), want: []string{"junk.yaml"}},
		{name: "file that is missing", args: upArgs(dir, "--config", filepath.Join(parent, "none.yaml")),
			want: []string{"none.yaml"}},
		{name: "bad variable", env: []string{"MONOPLANE_NODES=many"}, args: upArgs(dir),
			want: []string{"MONOPLANE_NODES", `"many"`}},
		{name: "scheduler's file that is missing", args: upArgs(dir, "--scheduler-config",
			filepath.Join(parent, "none.yaml")), want: []string{"none.yaml"}},
		{
			name: "scheduler's file with faults", // spec: SCHED-1
			args: upArgs(dir, "--scheduler-config", file("scheduler.yaml", faultyScheduler)),
			want: []string{"scheduler.yaml:4: ", "profiles[0].plugins.score.enabled[0].name", `"Lottery"`, "scheduler.yaml:5: ",
				"percentageOfNodes"},
		},
		{name: "data directory that is a file", args: upArgs(file("file", "")),
			want: []string{filepath.Join(parent, "file")}},
		{name: "down without a cluster", args: []string{"down", "--data-dir", dir}, want: []string{dir}},
		{name: "snapshot without a cluster", args: []string{"snapshot", "save", filepath.Join(parent, "s.db"), "--data-dir",
			dir}, want: []string{dir}},
		{name: "restore of junk", args: []string{"snapshot", "restore", file("junk.db", "junk"), "--data-dir", dir +
			"-restored"}, want: []string{"snapshot"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			refused(t, monoplane(t, tc.env, tc.args...), tc.want...)
		})
	}
}

// A --config file and a variable set what flags do not.
func TestSettings(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	config := filepath.Join(filepath.Dir(dir), "config.yaml")
	if err := os.WriteFile(config, []byte("nodes: 2\nnode-name: from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := startIn(t, dir, "--config", config, "--runtime", "fake", "--node-name", "from-flag")
	nodes, err := c.client(t).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 2 || nodes.Items[0].Name != "from-flag-0" {
		t.Errorf("nodes: %v, %v", nodes, err)
	}
	for _, args := range [][]string{{"--help"}, {"up", "--help"}, {"down", "--help"}, {"snapshot", "save", "--help"},
		{"version"}} {
		if r := monoplane(t, nil, args...); r.code != 0 || r.stdout == "" || r.stderr != "" {
			t.Errorf("monoplane %s: %+v", strings.Join(args, " "), r)
		}
	}
	info, err := os.Stat(c.kubeconfig())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("kubeconfig: %v, %v, want mode 0600", info, err)
	}
	if r := monoplane(t, nil, "kubeconfig", "--data-dir", dir); strings.TrimSpace(r.stdout) != c.kubeconfig() {
		t.Errorf("monoplane kubeconfig: %+v", r)
	}
}

// A path longer than a socket's address may be, with spaces.
func TestDataDirectoryWithALongName(t *testing.T) {
	t.Parallel()
	c := startIn(t, shortDir(t)+strings.Repeat(" long name", 15))
	p := c.pods(t, "default")
	p.run(t, podOf("hello", "echo hello; exec sleep 3600"))
	eventually(t, "the log", func() (bool, string) { got := p.logs(t, "hello"); return got == "hello\n", got })
	k := c.kubectl(t, "default")
	k.ok(t, "delete pod hello")
}

// A path with characters that mean something in patterns: logs are rotated and removed, and the data is found again.
func TestDataDirectoryWithBrackets(t *testing.T) {
	t.Parallel()
	dir := shortDir(t) + " [a-z]*{x}"
	c := startIn(t, dir)
	p := c.pods(t, "default")
	p.run(t, withRestart(podOf("fails", "echo hello; exit 1"), corev1.RestartPolicyAlways))
	p.run(t, podOf("stays", "echo hello; exec sleep 3600"))
	logs := func() []string {
		var files []string
		must(filepath.WalkDir(filepath.Join(dir, "nodes"), func(path string, _ fs.DirEntry, err error) error {
			if strings.Contains(path, "_fails_") && strings.HasSuffix(path, ".log") {
				files = append(files, filepath.Base(path))
			}
			return nil // what is gone meanwhile does not count
		}))
		return files
	}
	// An instance that waits for its restart keeps its own log alone, one that runs that of the instance before it too.
	eventually(t, "the log of the first instance to go with the third", func() (bool, string) {
		files := logs()
		n := len(files)
		return (n == 1 || n == 2) && files[0] != "0.log" && files[n-1] >= "2.log", fmt.Sprint(files)
	})
	c.kill(t)
	c = startIn(t, dir)
	p = c.pods(t, "default")
	eventually(t, "the log", func() (bool, string) { got := p.logs(t, "stays"); return got == "hello\n", got })
}

func TestPortTaken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, flag := range []string{"--listen", "--grpc-listen"} {
		t.Run(flag, func(t *testing.T) {
			dir := shortDir(t)
			r := monoplane(t, nil, upArgs(dir, flag, l.Addr().String())...)
			refused(t, r, "cannot listen on "+l.Addr().String(), "address already in use")
			if left := holders(dir); len(left) > 0 {
				t.Errorf("processes %v are left", left)
			}
			if _, err := os.Stat(filepath.Join(dir, "etcd")); !os.IsNotExist(err) {
				t.Errorf("the port was looked at after the database: %v", err)
			}
			// The directory is as good as new.
			startIn(t, dir)
		})
	}
}

func TestDataDirectoryInUse(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	r := monoplane(t, nil, upArgs(c.dir)...)
	refused(t, r, c.dir, fmt.Sprint(c.proc.Pid))
	if got := send(t, c.http(t), "GET", c.url+"/readyz", "", ""); got.body != "ok" {
		t.Errorf("the first instance: %d %s", got.code, got.body)
	}
	r = monoplane(t, nil, "snapshot", "restore", example(t, "hello.yaml"), "--data-dir", c.dir)
	refused(t, r, c.dir)
}

// Damage to the data is found before anything serves, is said in one line, and is left as it is: a start that
// goes on with what it can read would lose acknowledged writes.
// spec: DEL-13
func TestDamagedData(t *testing.T) {
	t.Parallel()
	healthy := newCluster(t, "--runtime", "fake")
	maps := healthy.client(t).CoreV1().ConfigMaps("default")
	for i := range 20 {
		if _, err := maps.Create(t.Context(), configMap(fmt.Sprintf("m%d", i), strings.Repeat("v", 50)),
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := healthy.end(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		damage func(t *testing.T, member string)
	}{
		{"WAL bytes", func(t *testing.T, member string) {
			overwrite(t, lastWAL(t, member), 2000, 64)
		}},
		{"WAL gone", func(t *testing.T, member string) {
			if err := os.Remove(lastWAL(t, member)); err != nil {
				t.Fatal(err)
			}
		}},
		{"database header", func(t *testing.T, member string) {
			overwrite(t, filepath.Join(member, "snap", "db"), 0, 8192)
		}},
		{"database page", func(t *testing.T, member string) {
			for page := int64(4); page < 40; page++ {
				overwrite(t, filepath.Join(member, "snap", "db"), page*4096, 512)
			}
		}},
		{"database cut off", func(t *testing.T, member string) {
			if err := os.Truncate(filepath.Join(member, "snap", "db"), 10_000); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := shortDir(t)
			copyDir(t, healthy.dir, dir)
			tc.damage(t, filepath.Join(dir, "etcd", "member"))
			before := digests(t, filepath.Join(dir, "etcd", "member"))
			refused(t, monoplane(t, nil, upArgs(dir, "--runtime", "fake")...), filepath.Join(dir, "etcd"))
			after := digests(t, filepath.Join(dir, "etcd", "member"))
			for path, sum := range before {
				if after[path] != sum {
					t.Errorf("%s was changed", path)
				}
			}
			if len(after) != len(before) {
				t.Errorf("files %v became %v", before, after)
			}
		})
	}
	t.Run("certificate authority", func(t *testing.T) {
		dir := shortDir(t)
		copyDir(t, healthy.dir, dir)
		overwrite(t, filepath.Join(dir, "pki", "ca.crt"), 100, 50)
		refused(t, monoplane(t, nil, upArgs(dir, "--runtime", "fake")...), filepath.Join(dir, "pki", "ca.crt"))
	})
	t.Run("none", func(t *testing.T) {
		dir := shortDir(t)
		copyDir(t, healthy.dir, dir)
		c := startIn(t, dir, "--runtime", "fake")
		list, err := c.client(t).CoreV1().ConfigMaps("default").List(t.Context(),
			metav1.ListOptions{FieldSelector: "metadata.name!=kube-root-ca.crt"})
		if err != nil || len(list.Items) != 20 {
			t.Errorf("%d config maps, %v; want 20", len(list.Items), err)
		}
	})
}

func lastWAL(t *testing.T, member string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(member, "wal", "*.wal"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no WAL: %v", err)
	}
	return files[len(files)-1]
}

// overwrite writes n bytes of junk over a file.
func overwrite(t *testing.T, path string, at int64, n int) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(bytes.Repeat([]byte{0xA5}, n), at); err != nil {
		t.Fatal(err)
	}
}

// copyDir copies the regular files and directories below a data directory, modes included.
func copyDir(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			return os.Mkdir(filepath.Join(to, rel), 0o700)
		case d.Type().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(to, rel), data, 0o600)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// digests returns a checksum of every file below dir.
func digests(t *testing.T, dir string) map[string]string {
	t.Helper()
	sums := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		sums[path] = fmt.Sprintf("%x", sha256.Sum256(data))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sums
}
