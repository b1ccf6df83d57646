package monoplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"monoplane.dev/apiserver/audit"
)

// AuditConfig says which requests are recorded, and where. The zero value records none; the acts that are lines of the
// server's log (forced deletions, break-glass, impersonation, exec, attach, port-forward) always are.
type AuditConfig struct {
	// PolicyFile is the path of a Policy of audit.k8s.io/v1, in YAML or JSON. Start refuses a faulty one with all its
	// faults, before it does anything else.
	PolicyFile string
	// Policy is the policy itself; then PolicyFile is only its name in faults.
	Policy []byte
	// LogFile is the file for the events, one line of JSON each.
	LogFile string
	// MaxBytes is the size at which a file is put aside, 100 MB by default; MaxBackups is how many are kept, 10 by
	// default; -1 is no bound. MaxAge is how long they are kept; 0 is for ever.
	MaxBytes   int64
	MaxBackups int
	MaxAge     time.Duration
	// Writer takes the lines in place of a file. It is not closed.
	Writer io.Writer
}

// auditStopGrace is how long the audit log may take for its last lines when a cluster stops: a disk that hangs shall
// not use up the time of what is stopped after it.
const auditStopGrace = 5 * time.Second

// read returns the policy, nil when there is none, and fills in the defaults.
func (a *AuditConfig) read() (*audit.Policy, error) {
	has, kept := a.PolicyFile != "" || a.Policy != nil, a.LogFile != "" || a.Writer != nil
	switch {
	case !has && !kept:
		return nil, nil
	case !has:
		return nil, errors.New("audit: there is a log and no policy that says what is recorded in it")
	case !kept:
		return nil, errors.New("audit: there is a policy and no log")
	case a.LogFile != "" && a.Writer != nil:
		return nil, errors.New("audit: there are a file and a writer for the log, expected one of both")
	case a.MaxBytes < -1 || a.MaxBackups < -1 || a.MaxAge < 0:
		return nil, errors.New("audit: a bound of the log is negative")
	}
	a.MaxBytes, a.MaxBackups = bound(a.MaxBytes, 100<<20), bound(a.MaxBackups, 10)
	text, name := a.Policy, a.PolicyFile
	if text == nil {
		var err error
		if text, err = os.ReadFile(name); err != nil {
			return nil, fmt.Errorf("the audit policy: %w", err)
		}
	} else if name == "" {
		name = "audit policy"
	}
	return audit.ParsePolicy(name, text)
}

// bound fills in the default of a bound, where -1 is none.
func bound[T int | int64](v, otherwise T) T {
	switch v {
	case 0:
		return otherwise
	case -1:
		return 0
	default:
		return v
	}
}

// openAudit opens the audit log, if one is wanted.
func (c *Cluster) openAudit(metrics prometheus.Registerer) (*audit.Log, error) {
	if c.cfg.auditPolicy == nil {
		return nil, nil
	}
	cfg := c.cfg.Audit
	var writer io.WriteCloser = unclosed{cfg.Writer}
	if cfg.Writer == nil {
		file, err := audit.OpenFile(audit.FileConfig{
			Path: cfg.LogFile, MaxBytes: cfg.MaxBytes, MaxBackups: cfg.MaxBackups, MaxAge: cfg.MaxAge,
		})
		if err != nil {
			return nil, err
		}
		writer = file
	}
	log, err := audit.NewLog(audit.Config{
		Policy: c.cfg.auditPolicy, Writer: writer, Logger: c.cfg.Logger, Registerer: metrics,
	})
	if err != nil {
		return nil, errors.Join(err, writer.Close())
	}
	c.onStop(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, auditStopGrace)
		defer cancel()
		return log.Close(ctx)
	})
	return log, nil
}

// unclosed is a writer that belongs to somebody else.
type unclosed struct{ io.Writer }

// Close does nothing.
func (unclosed) Close() error { return nil }
