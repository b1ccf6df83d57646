package rest_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	k8smeta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/fair"
	"monoplane.dev/apiserver/rest"
	"monoplane.dev/object"

	corev1rpc "monoplane.dev/api/core/v1/rpc"
)

// dial asks for a WebSocket; nil is returned with the answer that says why there is none.
func (f *front) dial(t *testing.T, path string, header http.Header) (*websocket.Conn, answer) {
	t.Helper()
	dialer := websocket.Dialer{TLSClientConfig: &tls.Config{
		RootCAs: f.http.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, NextProtos: []string{"http/1.1"},
	}}
	conn, res, err := dialer.DialContext(t.Context(), strings.Replace(f.http.URL, "http", "ws", 1)+path, header)
	if res == nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err != nil {
		body, _ := io.ReadAll(res.Body)
		return nil, answer{code: res.StatusCode, header: res.Header, body: string(body)}
	}
	t.Cleanup(func() { conn.Close() })
	return conn, answer{code: res.StatusCode, header: res.Header}
}

// expect reads a message.
func expect(t *testing.T, conn *websocket.Conn, kind int, want string) {
	t.Helper()
	if got, b, err := conn.ReadMessage(); err != nil || got != kind || string(b) != want {
		t.Fatalf("message %d %q, error %v; want %d %q", got, b, err, kind, want)
	}
}

// A watch over a WebSocket has an event in each message. spec: OBJ-7
func TestWatchOverAWebSocket(t *testing.T) {
	f := newFront(t)
	f.createPod("a")
	f.createPod("b")
	const query = "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	conn, _ := f.dial(t, pods+query, http.Header{"Sec-WebSocket-Protocol": {"mine"}, "Origin": {"http://localhost"}})
	if conn == nil || conn.Subprotocol() != "mine" {
		t.Fatal("no WebSocket, or none of the protocol that was asked for")
	}
	for _, want := range []string{"ADDED", "ADDED", "BOOKMARK"} {
		kind, b, err := conn.ReadMessage()
		var e frame
		if err != nil || kind != websocket.TextMessage || json.Unmarshal(b, &e) != nil || e.Type != want {
			t.Fatalf("message %d %q, error %v; want one %s", kind, b, err, want)
		}
	}
	conn, _ = f.dial(t, pods+query, http.Header{"Accept": {"application/vnd.kubernetes.protobuf"}})
	for _, want := range []object.EventType{object.Added, object.Added, object.Bookmark} {
		kind, b, err := conn.ReadMessage()
		var e k8smeta.WatchEvent
		if err != nil || kind != websocket.BinaryMessage || e.Unmarshal(b) != nil || e.Type != string(want) {
			t.Fatalf("message %d %q, error %v; want one %s", kind, b, err, want)
		}
	}
	conn, a := f.dial(t, pods+"?watch=true&fieldSelector=x%3Dy", nil)
	if conn != nil || a.code != http.StatusBadRequest || !strings.Contains(a.body, `"kind":"Status"`) {
		t.Errorf("a watch that cannot begin: %d %s", a.code, a.body)
	}
}

// A watch ends with its client, and takes of the shares what any other takes. spec: OBJ-7
func TestWatchesOverWebSocketsAreBounded(t *testing.T) {
	ended := make(chan struct{})
	s := &scripted{watch: func(ctx context.Context, accept func() error, _ func([]object.Event) error) error {
		defer close(ended)
		if err := accept(); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}}
	limits := fair.New(fair.Config{Long: 1})
	f := s.front(t, func(c *rest.Config) { c.Limits = limits })
	conn, _ := f.dial(t, pods+"?watch=true", nil)
	if second, a := f.dial(t, pods+"?watch=true", nil); second != nil || a.code != http.StatusTooManyRequests {
		t.Errorf("a second watch: %d %s", a.code, a.body)
	}
	conn.Close()
	<-ended
}

// spec: CLI-2
func TestLogOverAWebSocket(t *testing.T) {
	s := &scripted{logs: func(_ *corev1rpc.LogPodRequest, send func(string)) error {
		send("one\n")
		return nil
	}}
	f := s.front(t)
	for asked, x := range map[string]struct {
		kind    int
		got     string
		message string
	}{
		"":                                       {websocket.BinaryMessage, "", "one\n"},
		"binary.k8s.io":                          {websocket.BinaryMessage, "binary.k8s.io", "one\n"},
		"base64.binary.k8s.io":                   {websocket.TextMessage, "base64.binary.k8s.io", "b25lCg=="},
		"x, base64.binary.k8s.io, binary.k8s.io": {websocket.TextMessage, "base64.binary.k8s.io", "b25lCg=="},
	} {
		header := http.Header{}
		if asked != "" {
			header.Set("Sec-WebSocket-Protocol", asked)
		}
		conn, a := f.dial(t, pods+"/a/log?follow=true", header)
		if conn == nil || conn.Subprotocol() != x.got {
			t.Fatalf("%q: %d %s", asked, a.code, a.body)
		}
		expect(t, conn, x.kind, "") // as kube-apiserver begins
		expect(t, conn, x.kind, x.message)
		if _, _, err := conn.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
			t.Errorf("%q: the end is %v", asked, err)
		}
	}
	conn, a := f.dial(t, pods+"/a/log", http.Header{"Sec-WebSocket-Protocol": {"v4.channel.k8s.io"}})
	if conn != nil || a.code != http.StatusForbidden || !strings.Contains(a.body, "binary.k8s.io") {
		t.Errorf("another protocol: %d %s", a.code, a.body)
	}
	s.logs = func(*corev1rpc.LogPodRequest, func(string)) error { return nil }
	if conn, a = f.dial(t, pods+"/a/log", nil); conn == nil {
		t.Fatalf("an empty log: %d %s", a.code, a.body)
	}
	expect(t, conn, websocket.BinaryMessage, "")
	s.logs = func(*corev1rpc.LogPodRequest, func(string)) error {
		return apierrors.New(apierrors.BadRequest, "container c is waiting to start")
	}
	if conn, a = f.dial(t, pods+"/a/log", nil); conn != nil || a.code != http.StatusBadRequest ||
		!strings.Contains(a.body, "waiting to start") {
		t.Errorf("a log that there is none of: %d %s", a.code, a.body)
	}
}
