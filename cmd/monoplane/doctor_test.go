package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"monoplane.dev/apiserver/pki"
	"monoplane.dev/internal/datadir"
)

// said is what a doctor has found, a line each.
func (d *doctor) said(t *testing.T) string {
	t.Helper()
	var out bytes.Buffer
	err := d.print(&out)
	if code := exitCode(0); len(d.found) > 0 != errors.As(err, &code) {
		t.Errorf("%d findings end with %v", len(d.found), err)
	}
	return out.String()
}

// wants checks that there is one finding, which says all of it, and a remedy.
func (d *doctor) wants(t *testing.T, all ...string) {
	t.Helper()
	said := d.said(t)
	for _, want := range append(all, ". Remedy: ") {
		if !strings.Contains(said, want) {
			t.Errorf("%q is missing in: %s", want, said)
		}
	}
	if len(d.found) != 1 {
		t.Errorf("%d findings: %s", len(d.found), said)
	}
	d.found = nil
}

func (d *doctor) wantsNothing(t *testing.T) {
	t.Helper()
	if said := d.said(t); said != "No fault was found.\n" {
		t.Error(said)
	}
}

func TestDoctorSeesCertificatesAndClock(t *testing.T) {
	dir := t.TempDir()
	if _, err := pki.Ensure(filepath.Join(dir, "pki"), pki.Options{}); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	d := &doctor{now: func() time.Time { return now }}
	d.certificates(dir)
	d.wantsNothing(t)
	now = now.AddDate(1, 1, 0) // the authority lasts longer
	d.certificates(dir)
	d.wants(t, "admin.crt: the certificate expired on ", "start the server again, which renews it")
	now = now.AddDate(-10, 0, 0)
	d.certificates(dir)
	if said := d.said(t); strings.Count(said, "the clock says ") != 2 || !strings.Contains(said, "timedatectl") {
		t.Error(said)
	}
	d.found, now = nil, time.Now().AddDate(100, 0, 0)
	d.certificates(dir)
	if said := d.said(t); !strings.Contains(said, "ca.crt: the certificate expired on ") ||
		!strings.Contains(said, "all kubeconfigs are then replaced") {
		t.Error(said)
	}
	d.found = nil
	if err := os.WriteFile(filepath.Join(dir, "pki", "ca.crt"), []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	now = time.Now()
	d.certificates(dir)
	d.wants(t, "ca.crt: it holds no PEM certificate")
}

func TestDoctorSeesTakenPorts(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &doctor{listen: [2]string{l.Addr().String(), "127.0.0.1:0"}}
	d.ports()
	d.wants(t, fmt.Sprintf("%s: the port is taken by process %d (", l.Addr(), os.Getpid()), "--listen")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	d.ports()
	d.wantsNothing(t)
}

func TestDoctorSeesLocksWithoutServer(t *testing.T) {
	dir := t.TempDir()
	d := &doctor{}
	lock := func(name string) *os.File {
		t.Helper()
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		f, bad := os.Create(path)
		if err := errors.Join(err, bad); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		return f
	}
	store := lock("etcd/lock")
	d.withoutServer(dir)
	d.wants(t, fmt.Sprintf("etcd/lock: it is locked by process %d (", os.Getpid()))
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	d.withoutServer(dir)
	d.wantsNothing(t)
	lock("nodes/n/pods/pods/a/lock")
	d.withoutServer(dir)
	d.wants(t, "1 pods run, and no server does", "monoplane down")
}

func TestDoctorSeesServersThatDoNotAnswer(t *testing.T) {
	dir, err := datadir.Make(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := pki.Ensure(filepath.Join(dir.Path(), "pki"), pki.Options{})
	if err != nil {
		t.Fatal(err)
	}
	answer := "[+]ping ok\n[-]etcd failed: reason withheld\nreadyz check failed\n"
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if answer != "" {
			w.WriteHeader(http.StatusInternalServerError)
		}
		fmt.Fprint(w, answer)
	}))
	defer server.Close()
	d := &doctor{}
	d.server(t.Context(), dir, os.Getpid())
	d.wants(t, "kubeconfig", "wait until the server has started")
	err = bundle.WriteKubeconfig(filepath.Join(dir.Path(), datadir.Kubeconfig), pki.Endpoints{REST: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	d.server(t.Context(), dir, os.Getpid())
	d.wants(t, server.URL+"/readyz: the check etcd fails")
	answer = ""
	d.server(t.Context(), dir, os.Getpid())
	d.wantsNothing(t)
	server.Close()
	d.server(t.Context(), dir, os.Getpid())
	d.wants(t, server.URL+": the server, process ", "does not answer")

	stopped := exec.Command("sleep", "1000")
	if err := errors.Join(stopped.Start(), stopped.Process.Signal(syscall.SIGSTOP)); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = stopped.Process.Kill(), stopped.Wait() }()
	for deadline := time.Now().Add(time.Minute); !isStopped(stopped.Process.Pid); {
		if time.Now().After(deadline) {
			t.Skip("stopped processes cannot be seen here")
		}
	}
	d.server(t.Context(), dir, stopped.Process.Pid)
	d.wants(t, "is stopped", fmt.Sprintf("kill -CONT %d", stopped.Process.Pid))
}

// Doctor looks at everything of a directory, and changes nothing in it.
func TestDoctorExamines(t *testing.T) {
	path := t.TempDir()
	dir, err := datadir.Make(path)
	if err != nil {
		t.Fatal(err)
	}
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		err = dead.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	cwd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.Chdir(cwd); err != nil { // where the last server was started
			t.Error(err)
		}
	}()
	settings := map[string][]string{"etcd-endpoints": {"http://" + dead.Addr().String()}}
	if _, err := keepLastUp(dir.Path(), settings, true); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	d := &doctor{now: time.Now, listen: [2]string{"127.0.0.1:0", "127.0.0.1:0"}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	d.examine(ctx, path)
	if said := d.said(t); !strings.Contains(said, dead.Addr().String()+": etcd does not answer") {
		t.Error(said)
	}
	if after, err := os.ReadDir(path); err != nil || len(after) != len(before) {
		t.Errorf("%v was %v, %v", after, before, err)
	}
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	d.found = nil
	d.examine(ctx, path)
	if said := d.said(t); !strings.Contains(said, path) || !strings.Contains(said, "nobody else can write to") {
		t.Error(said)
	}
}
