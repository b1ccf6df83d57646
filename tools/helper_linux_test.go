package tools_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/runtime/oci/helper"
)

const packages = "gcc libc6-dev libseccomp-dev pkg-config"

// words are what tools/helper says of packages that are missing.
func words(sudo string) string {
	return "build: to run images, monoplane needs these packages when it is built: " + packages + "\n" +
		"build: install what is missing of them:  " + sudo + "apt-get install -y " + packages + "\n" +
		"build: without them this monoplane runs no images, such as nginx, but only image \"host\"\n"
}

const question = "build: install them now? [Y/n] "

// A machine on which the program that makes containers cannot be built says so, and how that is mended, before
// anything is built, which then is, without that program. It installs what is missing where it may, and asks nobody
// who is not there.
func TestHelperSaysWhatIsMissing(t *testing.T) {
	for _, c := range []struct {
		name              string
		root, ready, dead bool   // Dead is an apt-get that fails.
		answer            string // "" is for no terminal.
		deps              string
		says              string // At its end, what apt-get says apart.
		fails, installs   bool
	}{
		{name: "everything there", ready: true},
		{name: "everything there, asked to install", ready: true, root: true, deps: "yes"},
		{name: "root without a terminal", root: true, says: words("")},
		{name: "user without a terminal", says: words("sudo ")},
		{name: "user at a terminal", answer: "y\n", says: words("sudo ")},
		{name: "root says yes", root: true, answer: "y\n", says: words("") + question, installs: true},
		{name: "root presses return", root: true, answer: "\n", says: words("") + question, installs: true},
		{name: "root says no", root: true, answer: "n\n", says: words("") + question},
		{name: "root says something else", root: true, answer: "what?\n", says: words("") + question},
		{name: "root closes the terminal", root: true, answer: "\x04", says: words("") + question},
		{name: "root has asked for it", root: true, deps: "yes", says: words(""), installs: true},
		{name: "root has asked for another thing", root: true, deps: "no", says: words("")},
		{name: "root asks in vain", root: true, deps: "yes", dead: true, says: words(""), fails: true, installs: true},
		{name: "user has asked for it", deps: "yes", fails: true, says: words("sudo ") +
			"deps: run as root, or install these Debian packages yourself: " + packages + "\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t, c.root, c.ready, c.dead)
			built := filepath.Join(m.dir, "ocihelper.gz")
			if err := os.WriteFile(built, []byte("of an older source"), 0o600); err != nil {
				t.Fatal(err)
			}
			said, err := m.run(t, c.answer, c.deps, built)
			if exit, _ := err.(*exec.ExitError); c.fails != (exit != nil) || err != nil && exit == nil {
				t.Errorf("it ends with %v", err)
			}
			if said != c.says {
				t.Errorf("it says\n%s\nnot\n%s", said, c.says)
			}
			const command = "update -q\n-o DPkg::Lock::Timeout=300 install -y -q --no-install-recommends " + packages + "\n"
			if did := m.read("apt-get.did"); c.installs && did != command || !c.installs && did != "" {
				t.Errorf("apt-get is asked for %q", did)
			}
			text, _ := os.ReadFile(built)
			switch has := bytes.HasPrefix(text, []byte{0x1f, 0x8b}); {
			case c.fails:
			case has != (c.ready || c.installs):
				t.Errorf("the program was built: %t", has)
			case !has && text != nil:
				t.Error("a program is left that was built of an older source")
			}
		})
	}
}

// Another system has no such program, and needs nothing for it.
func TestHelperElsewhere(t *testing.T) {
	m := newMachine(t, true, false, false)
	m.program(t, "go", "echo darwin")
	if said, err := m.run(t, "", "yes", filepath.Join(m.dir, "out")); said != "" || err != nil {
		t.Errorf("it says %q, %v", said, err)
	}
}

// What make does first is to look for what is missing; and who reads only how to begin, or has a monoplane without
// images already, reads the packages' names.
func TestHelperIsToldOf(t *testing.T) {
	for _, target := range []string{"up", "build"} {
		cmd := exec.Command("make", "-n", "-W", "tools/helper", target)
		cmd.Dir = ".."
		out, err := cmd.CombinedOutput()
		first, second := bytes.Index(out, []byte("tools/helper ")), bytes.Index(out, []byte("./cmd/monoplane"))
		if err != nil || first < 0 || second < first {
			t.Errorf("make %s: %v\n%s", target, err, out)
		}
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	begin := regexp.MustCompile(`(?s)## Set up.*?## A tour`).FindString(string(readme))
	for _, want := range []string{"apt-get install", "DEPS=yes", packages} {
		if !strings.Contains(begin, want) {
			t.Errorf("the README does not say %q where it says how to set up", want)
		}
	}
	if !strings.Contains(helper.ErrMissing.Error(), packages) {
		t.Errorf("%v", helper.ErrMissing)
	}
}

// machine is one on which there are no programs but a few, and those of the test.
type machine struct{ dir string }

func newMachine(t *testing.T, root, ready, dead bool) machine {
	t.Helper()
	m := machine{dir: t.TempDir()}
	if err := os.Mkdir(filepath.Join(m.dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bash", "cat", "dirname", "grep", "gzip", "mktemp", "mv", "rm", "touch"} {
		path, err := exec.LookPath(name)
		if err == nil {
			err = os.Symlink(path, filepath.Join(m.dir, "bin", name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	uid := 1000
	if root {
		uid = 0
	}
	m.program(t, "id", "echo "+strconv.Itoa(uid))
	m.program(t, "go", `if [ "$1" = env ]; then echo linux; fi`)
	m.program(t, "dpkg-query", "exit 1")
	m.program(t, "gcc", "[ -e $0.installed ]")
	m.program(t, "pkg-config", "echo -lseccomp")
	end := `touch "${0%/*}/gcc.installed"`
	if dead {
		end = `[ "$1" = update ] || exit 100`
	}
	m.program(t, "apt-get", `echo "$@" >>"${0%/*}/../apt-get.did"`+"\n"+end)
	if ready {
		m.program(t, "gcc.installed", "")
	}
	return m
}

func (m machine) program(t *testing.T, name, does string) {
	t.Helper()
	text := fmt.Sprintf("#!%s\n%s\n", filepath.Join(m.dir, "bin", "bash"), does)
	if err := os.WriteFile(filepath.Join(m.dir, "bin", name), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func (m machine) read(name string) string {
	text, _ := os.ReadFile(filepath.Join(m.dir, name))
	return string(text)
}

// run runs tools/helper, at a terminal if there is an answer for it.
func (m machine) run(t *testing.T, answer, deps, to string) (string, error) {
	t.Helper()
	cmd := exec.Command(filepath.Join(m.dir, "bin", "bash"), "./helper", to)
	cmd.Env = []string{"PATH=" + filepath.Join(m.dir, "bin"), "DEPS=" + deps, "TMPDIR=" + m.dir}
	var said bytes.Buffer
	if answer == "" {
		cmd.Stdout, cmd.Stderr = &said, &said
		err := cmd.Run()
		return said.String(), err
	}
	leader, peer := terminal(t)
	defer leader.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = peer, peer, peer
	err := cmd.Start()
	peer.Close()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := leader.WriteString(answer); err != nil {
		t.Fatal(err)
	}
	_, _ = said.ReadFrom(leader) // Up to EIO: nobody has the other end any more.
	return said.String(), cmd.Wait()
}

// terminal makes a pseudo terminal, which shows what is written to it as it is.
func terminal(t *testing.T) (leader, peer *os.File) {
	t.Helper()
	leader, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("there are no terminals here: ", err)
	}
	fd := int(leader.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	peer, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	modes, err := unix.IoctlGetTermios(int(peer.Fd()), unix.TCGETS)
	if err == nil {
		modes.Lflag &^= unix.ECHO
		modes.Oflag &^= unix.OPOST
		err = unix.IoctlSetTermios(int(peer.Fd()), unix.TCSETS, modes)
	}
	if err != nil {
		t.Fatal(err)
	}
	return leader, peer
}
