package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// httpClient returns an HTTP/2 client. All its requests share one connection.
func httpClient(config *tls.Config) *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}}
}

// clientTLS returns how a client with a certificate connects.
func clientTLS(ca, cert, key []byte) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, errors.New("the CA is no PEM certificate")
	}
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}

// call sends one request, of JSON if it has a body, and reads the answer to its end.
func call(ctx context.Context, c *http.Client, method, url string, body []byte, want int) (int64, error) {
	return callWith(ctx, c, method, url, "application/json", body, want)
}

// callWith is call with a body of another type.
func callWith(
	ctx context.Context, c *http.Client, method, url, contentType string, body []byte, want int,
) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	if len(body) > 0 {
		req.Header.Set("Content-Type", contentType)
	}
	req.Header.Set("Accept", "application/json")
	res, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if res.StatusCode != want {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 1000))
		return 0, fmt.Errorf("%s %s: %s: %s", method, url, res.Status, text)
	}
	return io.Copy(io.Discard, res.Body)
}
