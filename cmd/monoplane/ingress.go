package main

import (
	"errors"

	"github.com/spf13/pflag"

	"monoplane.dev"
)

// Where requests for Ingresses arrive when nothing is said: for programs of this machine, at ports that need no right.
const (
	ingressHTTP  = "127.0.0.1:8080"
	ingressHTTPS = "127.0.0.1:8443"
)

// ingressOptions say whether Ingresses are served, and where.
type ingressOptions struct {
	on          bool
	http, https string
}

func (o *ingressOptions) add(flags *pflag.FlagSet) {
	flags.BoolVar(&o.on, "ingress", false, "serve Ingresses: lead requests from outside to Services by host and path")
	flags.StringVar(&o.http, "ingress-http", ingressHTTP,
		"address for requests over HTTP with --ingress, such as 0.0.0.0:80; port 0 picks a free one, empty for none")
	flags.StringVar(&o.https, "ingress-https", ingressHTTPS, "the same for HTTPS")
}

func (o *ingressOptions) config() (monoplane.IngressConfig, error) {
	switch {
	case !o.on && (o.http != ingressHTTP || o.https != ingressHTTPS):
		return monoplane.IngressConfig{}, errors.New("--ingress-http and --ingress-https need --ingress")
	case !o.on:
		return monoplane.IngressConfig{}, nil
	case o.http == "" && o.https == "":
		return monoplane.IngressConfig{}, errors.New("--ingress needs --ingress-http or --ingress-https")
	default:
		return monoplane.IngressConfig{HTTP: o.http, HTTPS: o.https}, nil
	}
}
