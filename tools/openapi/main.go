// Command openapi writes docs/api/openapi.json: the OpenAPI document, version 2, that a server of this source serves
// on /openapi/v2, with a line for each path and each definition, so that changes can be read. With -check it fails if
// the file says something else. Run it from the root of the repository; `make generate` and `make verify` do.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/grpc"

	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/rest"
	"monoplane.dev/apiserver/rest/openapi"
)

func main() {
	check := flag.Bool("check", false, "write nothing; fail when the file is not current")
	flag.Parse()
	if err := run(filepath.Join("docs", "api", "openapi.json"), *check); err != nil {
		fmt.Fprintln(os.Stderr, "openapi:", err)
		os.Exit(1)
	}
}

func run(path string, check bool) error {
	text, err := document()
	if err != nil {
		return err
	}
	if !check {
		return os.WriteFile(path, text, 0o600)
	}
	have, err := os.ReadFile(path)
	if err == nil && !bytes.Equal(have, text) {
		err = errors.New(path + " is out of date; run: make generate")
	}
	return err
}

// document asks a front without services behind it.
func document() ([]byte, error) {
	h, err := rest.New(rest.Config{
		Conn: struct{ grpc.ClientConnInterface }{}, Logger: slog.New(slog.DiscardHandler), Version: "1.36.3",
		Authenticate: func(_ http.ResponseWriter, r *http.Request) *http.Request {
			return r.WithContext(authn.WithUser(r.Context(), &authn.User{Name: "openapi"}))
		},
	})
	if err != nil {
		return nil, err
	}
	defer h.Close()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodGet, openapi.V2Path, nil))
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil || w.Code != http.StatusOK {
		return nil, fmt.Errorf("%s: %d %w", openapi.V2Path, w.Code, err)
	}
	return lines(doc)
}

// lines writes a document with a line for each entry of its long parts.
func lines(doc map[string]json.RawMessage) ([]byte, error) {
	var b bytes.Buffer
	for i, key := range slices.Sorted(maps.Keys(doc)) {
		if i > 0 {
			b.WriteString(",\n")
		} else {
			b.WriteString("{\n")
		}
		fmt.Fprintf(&b, "%q: ", key)
		if key != "paths" && key != "definitions" {
			b.Write(doc[key])
			continue
		}
		var entries map[string]json.RawMessage
		if err := json.Unmarshal(doc[key], &entries); err != nil {
			return nil, err
		}
		for i, name := range slices.Sorted(maps.Keys(entries)) {
			if i > 0 {
				b.WriteString(",\n")
			} else {
				b.WriteString("{\n")
			}
			fmt.Fprintf(&b, "%q: %s", name, entries[name])
		}
		b.WriteString("\n}")
	}
	b.WriteString("\n}\n")
	return b.Bytes(), nil
}
