package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"monoplane.dev/apiserver/pki"
	"monoplane.dev/apiserver/store/etcd/embedded"
	"monoplane.dev/apiserver/store/etcd/external"
	"monoplane.dev/internal/datadir"
	"monoplane.dev/internal/dirlock"
)

func newDoctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what keeps a cluster from working, and what mends it",
		Long: `Looks at the data directory, at the server that runs on it or would, and at the machine: disks, locks,
certificates, the clock, etcd, ports, what the kernel lacks, and what clusters have left that were killed. It
changes nothing. For each fault it prints one line: where, what, and the remedy; with one, its exit code is 1.`,
		Args: cobra.NoArgs,
	}
	d := &doctor{now: time.Now}
	dir := addDataDir(cmd.Flags())
	cmd.Flags().StringVar(&d.listen[0], "listen", "127.0.0.1:6443", "address that the REST API is to have")
	cmd.Flags().StringVar(&d.listen[1], "grpc-listen", "127.0.0.1:6444", "address that the gRPC API is to have")
	bindSettings(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d.examine(cmd.Context(), *dir)
		return d.print(cmd.OutOrStdout())
	}
	return cmd
}

// finding is a fault, and what mends it.
type finding struct{ where, what, remedy string }

// doctor collects findings.
type doctor struct {
	listen [2]string
	now    func() time.Time
	found  []finding
}

func (d *doctor) add(where, what, remedy string) {
	d.found = append(d.found, finding{where, what, remedy})
}

// unless adds an error, if there is one.
func (d *doctor) unless(where string, err error, remedy string) {
	if err != nil {
		d.add(where, oneLine(err), remedy)
	}
}

func (d *doctor) print(w io.Writer) error {
	for _, f := range d.found {
		if _, err := fmt.Fprintf(w, "%s: %s. Remedy: %s.\n", f.where, f.what, f.remedy); err != nil {
			return err
		}
	}
	if len(d.found) > 0 {
		return exitCode(1)
	}
	_, err := fmt.Fprintln(w, "No fault was found.")
	return err
}

func (d *doctor) examine(ctx context.Context, path string) {
	d.machine()
	dir, err := datadir.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		d.ports()
		return
	}
	if err != nil {
		d.add(path, oneLine(err), "make it a directory of this user's that nobody else can write to, or name another one")
		return
	}
	d.disks(dir.Path())
	d.certificates(dir.Path())
	last, err := readLastUp(dir)
	d.unless(path, err, "restore the file, or remove it if nothing of the cluster runs")
	if last != nil {
		d.externalEtcd(ctx, dir, last)
	}
	used := (*dirlock.InUseError)(nil)
	switch err := dirlock.Held(dir); {
	case errors.As(err, &used):
		d.server(ctx, dir, used.PID)
	case err != nil:
		d.add(path, oneLine(err), "mend its disk, or name another directory")
	default:
		d.withoutServer(dir.Path())
		d.ports()
	}
}

// disks looks at where the store and the agent write.
func (d *doctor) disks(dir string) {
	store := filepath.Join(dir, "etcd")
	if _, err := os.Stat(store); err == nil {
		d.disk(store, embedded.Room(store), "the store")
	}
	agent := filepath.Join(dir, "nodes")
	if _, err := os.Stat(agent); err == nil {
		d.disk(agent, agentRoom(agent), "the agent of the node")
	}
}

func (d *doctor) disk(dir string, err error, whose string) {
	switch {
	case err == nil:
	case errors.Is(err, syscall.EROFS):
		d.add(dir, "the disk of "+whose+" is read-only", "see in the kernel's log why, and mount it for writing; "+
			"a server that runs then writes again, one that has ended is started again")
	default:
		d.add(dir, "the disk of "+whose+" is full: "+oneLine(err),
			"free some of it; a server that runs then goes on by itself")
	}
}

// certificates looks at when they are valid. A clock that was set back makes them ones of a time to come.
func (d *doctor) certificates(dir string) {
	files, _ := filepath.Glob(filepath.Join(dir, "pki", "*.crt")) // the pattern is right
	for _, name := range files {
		d.certificate(name, "start the server again, which renews it")
	}
}

func (d *doctor) certificate(name, remedy string) {
	text, err := os.ReadFile(name)
	if err != nil {
		d.unless(name, err, "let this user read it")
		return
	}
	block, _ := pem.Decode(text)
	if block == nil {
		d.add(name, "it holds no PEM certificate", "restore it from a backup")
		return
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		d.unless(name, err, "restore it from a backup")
		return
	}
	const day = time.DateOnly
	now := d.now()
	switch {
	case now.After(c.NotAfter):
		if c.IsCA && filepath.Base(filepath.Dir(name)) == "pki" {
			remedy = "restore its directory from a backup, or remove that to start with a new authority; all kubeconfigs " +
				"are then replaced"
		}
		d.add(name, fmt.Sprintf("the certificate expired on %s, and the clock says %s", c.NotAfter.UTC().Format(day),
			now.UTC().Format(day)), "set the clock if it is wrong; else "+remedy)
	case now.Before(c.NotBefore):
		d.add(name, fmt.Sprintf("the clock says %s, and the certificate is valid from %s", now.UTC().Format(time.RFC3339),
			c.NotBefore.UTC().Format(time.RFC3339)), "set the clock, such as by timedatectl set-ntp true")
	}
}

// externalEtcd asks the etcd of the last up, if that was not its own.
func (d *doctor) externalEtcd(ctx context.Context, dir *datadir.Dir, last *lastUp) {
	if len(last.Settings["etcd-endpoints"]) == 0 {
		return
	}
	options, err := last.options(dir.Path())
	if err != nil {
		d.unless(dir.Path(), err, "start the server with settings that this version knows")
		return
	}
	for _, name := range []string{options.etcdTLS.ca, options.etcdTLS.cert} {
		if name != "" {
			d.certificate(name, "give etcd and its clients a new one")
		}
	}
	cfg, err := options.etcdTLS.config()
	if err != nil {
		d.unless("etcd", err, "restore the files of the certificates")
		return
	}
	faults, err := external.Examine(ctx, external.Config{Endpoints: options.etcdEndpoints, TLS: cfg})
	d.unless("etcd", err, "correct --etcd-endpoints")
	for _, f := range faults {
		d.add(f.Endpoint, f.What, f.Remedy)
	}
}

// server asks the one that holds the data directory how it is.
func (d *doctor) server(ctx context.Context, dir *datadir.Dir, pid int) {
	who := fmt.Sprintf("%s, process %d", dir.Path(), pid)
	if isStopped(pid) {
		d.add(who, "the server holds the directory and is stopped", fmt.Sprintf("kill -CONT %d", pid))
		return
	}
	text, err := dir.ReadSecret(datadir.Kubeconfig)
	if err != nil {
		d.unless(who, err, "wait until the server has started; if it does not, see what it prints")
		return
	}
	at, err := pki.EndpointsOf(text)
	if err != nil || at.REST == "" {
		d.unless(who, err, "start the server again, which writes the file anew")
		return
	}
	failed, err := failedChecks(ctx, at.REST)
	if err != nil {
		d.add(at.REST, fmt.Sprintf("the server, process %d, does not answer: %s", pid, oneLine(err)),
			fmt.Sprintf("see what it prints; if it hangs, kill -QUIT %d says where, and monoplane up goes on", pid))
	}
	for _, name := range failed {
		d.add(at.REST+"/readyz", "the check "+name+" fails",
			"see the other lines, and what the server prints of it, which says why")
	}
}

// failedChecks returns which checks of a server's health fail. Anybody may ask for them, and what is read decides
// nothing, so that the server need not prove who it is.
func failedChecks(ctx context.Context, url string) (failed []string, err error) {
	const patience = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz?verbose", nil)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // see above
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "[-]"); ok {
			name, _, _ = strings.Cut(name, " ")
			failed = append(failed, name)
		}
	}
	if resp.StatusCode != http.StatusOK && len(failed) == 0 {
		err = fmt.Errorf("it answers %s", resp.Status)
	}
	return failed, err
}

// withoutServer looks at what holds parts of a directory that no server holds.
func (d *doctor) withoutServer(dir string) {
	for _, pattern := range []string{"etcd/lock", "nodes/*/pods/lock"} {
		names, _ := filepath.Glob(filepath.Join(dir, pattern)) // the pattern is right
		for _, name := range names {
			if pid, held := holder(name); held {
				d.add(name, "it is locked by "+process(pid)+", and no server runs here", "end that process")
			}
		}
	}
	shims, _ := filepath.Glob(filepath.Join(dir, "nodes/*/pods/pods/*/lock")) // the pattern is right
	pods := 0
	for _, name := range shims {
		if _, held := holder(name); held {
			pods++
		}
	}
	if pods > 0 {
		d.add(dir, fmt.Sprintf("%d pods run, and no server does", pods),
			"monoplane up goes on with them, monoplane down ends them")
	}
}

// holder says whether a file is locked, and by which process; 0 when that cannot be seen.
func holder(name string) (pid int, held bool) {
	f, err := os.Open(name)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	// Shared, and for a moment: whoever wants the lock waits longer.
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) {
		return 0, false
	}
	return lockOwner(f), true
}

// ports looks at whether a server could listen.
func (d *doctor) ports() {
	for i, flag := range []string{"--listen", "--grpc-listen"} {
		l, err := net.Listen("tcp", d.listen[i])
		switch {
		case err == nil:
			l.Close()
		case errors.Is(err, syscall.EADDRINUSE):
			d.add(d.listen[i], "the port is taken by "+process(portOwner(d.listen[i])),
				"end that, or choose another one with "+flag)
		default:
			d.add(d.listen[i], oneLine(err), "choose another address with "+flag)
		}
	}
}

// process names a process; 0 is one that cannot be seen.
func process(pid int) string {
	if pid == 0 {
		return "a process of another user or container"
	}
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)) // it may have ended
	return fmt.Sprintf("process %d (%s)", pid, cmp.Or(strings.TrimSpace(string(name)), "ended"))
}
