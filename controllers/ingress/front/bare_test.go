package front_test

import (
	"net/http"
	"net/http/httputil"
	"net/url"
)

// bare is a proxy with nothing of our own.
func bare(to string) http.Handler {
	target, err := url.Parse(to)
	if err != nil {
		panic(err)
	}
	return &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target); r.SetXForwarded() },
		Transport: &http.Transport{MaxIdleConnsPerHost: 64},
	}
}
