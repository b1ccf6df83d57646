package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"
)

// etcdTLS are the files with which an external etcd is reached.
type etcdTLS struct {
	ca, cert, key string
}

func (f *etcdTLS) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.ca, "etcd-cafile", "",
		"certificates that the external etcd's is checked with (default: the system's)")
	flags.StringVar(&f.cert, "etcd-certfile", "", "client certificate for the external etcd")
	flags.StringVar(&f.key, "etcd-keyfile", "", "key of the client certificate")
}

// config returns nil when no file is named.
func (f *etcdTLS) config() (*tls.Config, error) {
	if *f == (etcdTLS{}) {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, fmt.Errorf("--etcd-cafile: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--etcd-cafile: %s holds no PEM certificate", f.ca)
		}
	}
	if (f.cert == "") != (f.key == "") {
		return nil, errors.New("--etcd-certfile and --etcd-keyfile belong together")
	}
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, fmt.Errorf("--etcd-certfile, --etcd-keyfile: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
