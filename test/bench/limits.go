package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"monoplane.dev/apiserver/pki"
	"monoplane.dev/apiserver/rest"
	"monoplane.dev/apiserver/store/etcd/embedded"
)

// rawEtcd is an embedded etcd with nothing in front of it, set up as that of a cluster, fsync included.
type rawEtcd struct {
	etcd  *embedded.Embedded
	value []byte
}

// newRawEtcd starts an etcd whose transactions write value.
func newRawEtcd(ctx context.Context, e *env, value []byte) (*rawEtcd, error) {
	dir, err := e.tempDir()
	if err != nil {
		return nil, err
	}
	server, err := embedded.Start(ctx, embedded.Config{Dir: dir}, nil)
	if err != nil {
		return nil, err
	}
	return &rawEtcd{etcd: server, value: value}, nil
}

// put creates a key in one transaction that compares it absent, as a create does, and does what else is given.
func (r *rawEtcd) put(ctx context.Context, key string, also ...*etcdserverpb.RequestOp) error {
	k := []byte(key)
	res, err := r.etcd.Txn(ctx, &etcdserverpb.TxnRequest{
		Compare: []*etcdserverpb.Compare{{
			Key: k, Target: etcdserverpb.Compare_MOD, Result: etcdserverpb.Compare_EQUAL,
			TargetUnion: &etcdserverpb.Compare_ModRevision{ModRevision: 0},
		}},
		Success: append([]*etcdserverpb.RequestOp{putOp(k, r.value)}, also...),
	})
	if err == nil && !res.Succeeded {
		return fmt.Errorf("key %s exists", key)
	}
	return err
}

func putOp(key, value []byte) *etcdserverpb.RequestOp {
	return &etcdserverpb.RequestOp{
		Request: &etcdserverpb.RequestOp_RequestPut{RequestPut: &etcdserverpb.PutRequest{Key: key, Value: value}},
	}
}

// rate returns how many transactions a second a number of clients reach.
func (r *rawEtcd) rate(ctx context.Context, clients, n int) (float64, error) {
	prefix := fmt.Sprintf("/bench/%d/", time.Now().UnixNano())
	return drive(ctx, clients, n, func(ctx context.Context, _, i int) error { return r.put(ctx, fmt.Sprint(prefix, i)) })
}

// bare is a TLS and HTTP/2 server with one handler.
type bare struct {
	url    string
	server *http.Server
	client *http.Client
}

// newBare serves h with a server and certificates as a cluster has them, so that ciphers and the settings of
// HTTP/2 are the same on both sides.
func newBare(e *env, h http.Handler) (*bare, error) {
	serving, calling, err := bothEnds(e)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := rest.NewServer(h, serving, slog.New(slog.DiscardHandler))
	go func() { _ = s.ServeTLS(l, "", "") }()
	return &bare{url: "https://" + l.Addr().String(), server: s, client: httpClient(calling)}, nil
}

// bothEnds returns how a server and a client of it are set up in a cluster.
func bothEnds(e *env) (serving, calling *tls.Config, err error) {
	dir, err := e.tempDir()
	if err != nil {
		return nil, nil, err
	}
	bundle, err := pki.Ensure(dir, pki.Options{})
	if err != nil {
		return nil, nil, err
	}
	id, err := bundle.Issue("bench", nil, time.Hour)
	if err != nil {
		return nil, nil, err
	}
	calling, err = clientTLS(id.CA, id.Cert, id.Key)
	return bundle.ServerTLS(), calling, err
}

func (b *bare) close() error { return b.server.Close() }

// ceiling answers a create with the least that any server must do: decode the JSON, one transaction. The
// answer is always the same bytes.
func ceiling(r *rawEtcd, answer []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		p, err := decodePod(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err := r.put(req.Context(), "/ceiling/"+p.GetMetadata().GetName()); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(answer)
	})
}

// static answers every request with the same bytes.
func static(body []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body)
	})
}

// staticStream writes the chunks, flushing each, and then holds the stream open.
func staticStream(chunks [][]byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		flush := http.NewResponseController(w)
		for _, chunk := range chunks {
			if _, err := w.Write(chunk); err != nil {
				return
			}
			if err := flush.Flush(); err != nil {
				return
			}
		}
		<-req.Context().Done()
	})
}
