//go:build rootonly

package e2e_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"monoplane.dev/test/containerd"
)

// listen listens on a free port of an address of the machine.
func (m *machine) listen(t *testing.T, address string) net.Listener {
	t.Helper()
	l, err := insideOf(m, func() (net.Listener, error) { return net.Listen("tcp", net.JoinHostPort(address, "0")) })
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// serveNginx serves an image that does what nginx does, by that name, on the machine, and returns a file that makes it
// the mirror of docker.io.
func (m *machine) serveNginx(t *testing.T) string {
	t.Helper()
	layer, config, err := containerd.Nginx()
	if err != nil {
		t.Fatal(err)
	}
	handler, err := newRegistryOf("library/nginx", "latest", layer, config)
	if err != nil {
		t.Fatal(err)
	}
	return m.registryConfig(t, fmt.Sprintf("registries:\n  docker.io:\n    mirrors: [\"http://%s\"]\n",
		m.serve(t, "127.0.0.1", handler)))
}

// serve serves on a free port of an address of the machine, and returns both.
func (m *machine) serve(t *testing.T, address string, handler http.Handler) string {
	t.Helper()
	server := &http.Server{Handler: handler}
	l := m.listen(t, address)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return l.Addr().String()
}

// registryConfig writes the text where any user can read it.
func (m *machine) registryConfig(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(shortDir(t)+"-registries", "registries.yaml")
	if err := os.Mkdir(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(filepath.Dir(file)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// readmeCommands are the commands of the README's first block in which something is said, without those that set the
// environment.
func readmeCommands(t *testing.T, of string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)\n```\n(.*?)\n```\n").FindAllStringSubmatch(string(text), -1) {
		if !strings.Contains(block[1], of) {
			continue
		}
		var commands []string
		for line := range strings.Lines(block[1]) {
			if c, ok := strings.CutPrefix(line, "$ "); ok && !strings.HasPrefix(c, "export ") {
				commands = append(commands, strings.TrimSpace(c))
			}
		}
		return commands
	}
	t.Fatalf("no block of the README has %q", of)
	return nil
}

// TestRootReadme types what the README tells a new user to type, as root and as a user who is not, on a machine of its
// own where docker.io is a registry of the test: no runtime is named, and nginx answers on the machine.
//
// spec: CLI-2, NET-1, WORK-4
func TestRootReadme(t *testing.T) {
	t.Parallel()
	t.Run("root", func(t *testing.T) {
		t.Parallel()
		playReadme(t, newMachine(t))
	})
	t.Run("user", func(t *testing.T) {
		t.Parallel()
		if _, err := exec.LookPath("newuidmap"); err != nil {
			t.Skip("newuidmap is not installed (make deps)")
		}
		m := newMachine(t)
		m.uid = 65534 // newuidmap asks for a user with a name.
		m.ids = filepath.Join(t.TempDir(), "ids")
		if err := os.WriteFile(m.ids, fmt.Appendf(nil, "%d:1000000:65536\n", m.uid), 0o644); err != nil {
			t.Fatal(err)
		}
		playReadme(t, m)
	})
}

func playReadme(t *testing.T, m *machine) {
	registries := m.serveNginx(t)
	home := mine(t, m.uid, filepath.Dir(shortDir(t)))
	program := filepath.Join(home, "monoplane") // Where that user gets to.
	if out, err := exec.Command("cp", binary(t, "monoplane"), program).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	dir := filepath.Join(home, "data")
	monoplane := m.program(t, program)
	begin := func() *cluster {
		c, err := start(monoplane, dir, "--runtime", "auto", "--image-dir", filepath.Join(home, "images"),
			"--registry-config", registries)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := begin()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("stderr of the cluster ends with:\n%s", c.stderr.tail(40))
		}
		if c.proc.Signal(syscall.SIGINT) == nil { // stops the pods
			c.waitExit(t)
		}
		if err := c.left(); err != nil {
			t.Error(err)
		}
	})
	if !strings.Contains(c.stdout.String(), "runtime     oci") {
		t.Fatalf("images are not run by default:\n%s%s", c.stdout, c.stderr)
	}
	k := c.kubectl(t, "default")
	k.on(t, m)
	bin := filepath.Join(t.TempDir(), "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(k.path, filepath.Join(bin, "kubectl")); err != nil {
		t.Fatal(err)
	}
	var said string
	for _, command := range readmeCommands(t, "--image=nginx") {
		cmd := exec.CommandContext(t.Context(), "nsenter", "--net=/run/netns/"+m.name,
			"bash", "-o", "pipefail", "-c", command)
		cmd.Env = environment("KUBECONFIG="+c.kubeconfig(), "PATH="+bin+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s\n%s", command, err, out, k.ok(t, "describe pods"))
		}
		said += "$ " + command + "\n" + string(out)
	}
	for _, want := range []string{"deployment.apps/web created", "service/web exposed", "successfully rolled out",
		"<title>Welcome to nginx!</title>"} {
		if !strings.Contains(said, want) {
			t.Errorf("nothing says %q:\n%s", want, said)
		}
	}
	// What else is done with a pod.
	k.until(t, "logs deployment/web", `response:200`)
	pod := strings.TrimSpace(k.ok(t, "get pods -l app=web -o name"))
	local, end := k.forward(t, pod, 80)
	out := m.run(t, "curl", "-s", "127.0.0.1:"+local)
	end()
	if !strings.Contains(out, "Welcome to nginx!") {
		t.Errorf("port-forward: %q", out)
	}
	file := filepath.Join(t.TempDir(), "page")
	if err := os.WriteFile(file, []byte("copied"), 0o644); err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(pod, "pod/")
	k.ok(t, fmt.Sprintf("cp %s %s:/www/page", file, name))
	if out := k.ok(t, "exec "+name+" -- cat /www/page"); out != "copied" {
		t.Errorf("cp into the pod: %q", out)
	}
	k.ok(t, fmt.Sprintf("cp %s:/www/page %s", name, file+"2"))
	if out, err := os.ReadFile(file + "2"); err != nil || string(out) != "copied" {
		t.Errorf("cp out of the pod: %q, %v", out, err)
	}
	k.until(t, "top pods", name+` +\d+m +\d+Mi`)
	k.ok(t, "run one --image=nginx --port=80 --expose")
	k.ok(t, "wait --for=condition=Ready pod/one --timeout=2m")
	eventually(t, "the Service of kubectl run --expose answers", func() (bool, string) {
		out, _ := k.run(t, "", "exec", name, "--", "wget", "-qO-", "http://one")
		return strings.Contains(out, "Welcome to nginx!"), out
	})
	k.ok(t, "delete deployment/web service/web pod/one service/one --timeout=2m")

	// Pods of image "host" are adopted like all others, and changes of a ConfigMap reach them.
	k.ok(t, "apply -f "+example(t, "hello.yaml")+" -f "+example(t, "greeting.yaml"))
	k.until(t, "logs hello", `hello 2 from hello`)
	k.until(t, "logs greeter", `^Hello\n`)
	c.kill(t)
	c = begin()
	heard := strings.Count(k.ok(t, "logs hello"), "\n")
	k.ok(t, `patch configmap greeting -p '{"data": {"text": "Good evening"}}'`)
	k.until(t, "logs greeter --tail=1", `^Good evening\n`)
	k.ok(t, `patch configmap greeting -p '{"data": {"health": "bad"}}'`)
	k.until(t, "get pod greeter -o jsonpath={.status.containerStatuses[0].restartCount}", `^[1-9]`)
	hello := k.until(t, "logs hello", fmt.Sprintf(`hello %d from hello`, heard+2))
	n := 0
	for line := range strings.Lines(hello) {
		if n++; line != fmt.Sprintf("hello %d from hello\n", n) {
			t.Fatalf("line %d of the pod that says hello: %s", n, line)
		}
	}
	k.ok(t, "delete pod/hello pod/greeter configmap/greeting --timeout=2m")
}
