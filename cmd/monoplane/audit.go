package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"monoplane.dev"
)

// auditOptions are the flags of the audit log, named as kube-apiserver's.
type auditOptions struct {
	policy    string
	log       string
	maxSize   int64
	maxBackup int
	maxAge    int
}

func (o *auditOptions) add(flags *pflag.FlagSet) {
	flags.StringVar(&o.policy, "audit-policy-file", "",
		"file with a Policy of audit.k8s.io/v1, which says what of which requests is recorded")
	flags.StringVar(&o.log, "audit-log-path", "", `file for the audit's events, one line of JSON each; "-" for stdout`)
	flags.Int64Var(&o.maxSize, "audit-log-maxsize", 100, "megabytes after which the file is put aside; 0 for no bound")
	flags.IntVar(&o.maxBackup, "audit-log-maxbackup", 10, "how many files are kept beside it; 0 for all")
	flags.IntVar(&o.maxAge, "audit-log-maxage", 0, "days after which they are removed; 0 for never")
}

func (o *auditOptions) config(stdout io.Writer) (monoplane.AuditConfig, error) {
	if o.maxSize < 0 || o.maxBackup < 0 || o.maxAge < 0 {
		return monoplane.AuditConfig{}, fmt.Errorf(
			"--audit-log-maxsize, --audit-log-maxbackup and --audit-log-maxage are %d, %d and %d, expected 0 or more",
			o.maxSize, o.maxBackup, o.maxAge)
	}
	cfg := monoplane.AuditConfig{
		PolicyFile: o.policy, LogFile: o.log, MaxBytes: o.maxSize << 20, MaxBackups: o.maxBackup,
		MaxAge: time.Duration(o.maxAge) * 24 * time.Hour,
	}
	if o.log == "-" {
		cfg.LogFile, cfg.Writer = "", stdout
	}
	// In a configuration 0 stands for the default.
	if o.maxSize == 0 {
		cfg.MaxBytes = -1
	}
	if o.maxBackup == 0 {
		cfg.MaxBackups = -1
	}
	return cfg, nil
}
