package pki

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"monoplane.dev/internal/datadir"
)

// Context is the name of the cluster, the user and the context in the kubeconfig.
const Context = "monoplane"

// GRPCExtension is the name of the extension that says where the gRPC API is, in the shape {address: HOST:PORT}.
const GRPCExtension = "monoplane.dev/grpc"

// Endpoints say where clients find the APIs.
type Endpoints struct {
	// REST is the URL of the REST API, such as "https://127.0.0.1:6443"; empty for none.
	REST string
	// GRPC is the host and port of the gRPC API; empty for none.
	GRPC string
}

// WriteKubeconfig writes a kubeconfig for the administrator, with everything in it, to path: mode 0600,
// whole or not at all. A file that already holds the same is left alone.
func (b *Bundle) WriteKubeconfig(path string, at Endpoints) error {
	data, err := Kubeconfig(b.Admin(), at)
	if err != nil {
		return err
	}
	dir, err := datadir.Make(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("pki: %w", err)
	}
	name := filepath.Base(path)
	// Whatever else bears the name is replaced, not followed.
	if old, err := dir.ReadSecret(name); err == nil && bytes.Equal(old, data) {
		return nil
	}
	if err := writeFile(dir, name, data); err != nil {
		return err
	}
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("pki: %w", err)
	}
	return nil
}

// Kubeconfig returns a kubeconfig for an identity.
func Kubeconfig(id Identity, at Endpoints) ([]byte, error) {
	u, err := url.Parse(at.REST)
	grpcOnly := at.REST == "" && at.GRPC != ""
	if err != nil || !grpcOnly && (u.Scheme != "https" || u.Host == "" || strings.ContainsAny(at.REST, "\"\\\n")) {
		return nil, fmt.Errorf("pki: %q is not an https URL", at.REST)
	}
	extensions := ""
	if at.GRPC != "" {
		if _, _, err := net.SplitHostPort(at.GRPC); err != nil || strings.ContainsAny(at.GRPC, "\"\\\n") {
			return nil, fmt.Errorf("pki: %q is not a host and port", at.GRPC)
		}
		extensions = fmt.Sprintf("    extensions:\n    - name: %s\n      extension: {address: %q}\n", GRPCExtension, at.GRPC)
	}
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: %[1]s
clusters:
- name: %[1]s
  cluster:
    server: "%[2]s"
    certificate-authority-data: %[3]s
%[6]susers:
- name: %[1]s
  user:
    client-certificate-data: %[4]s
    client-key-data: %[5]s
contexts:
- name: %[1]s
  context:
    cluster: %[1]s
    user: %[1]s
`, Context, at.REST, b64(id.CA), b64(id.Cert), b64(id.Key), extensions), nil
}

// EndpointsOf returns the endpoints that Kubeconfig has written into a kubeconfig.
func EndpointsOf(kubeconfig []byte) (Endpoints, error) {
	var file struct {
		Clusters []struct {
			Cluster struct {
				Server     string `json:"server"`
				Extensions []struct {
					Name      string `json:"name"`
					Extension struct {
						Address string `json:"address"`
					} `json:"extension"`
				} `json:"extensions"`
			} `json:"cluster"`
		} `json:"clusters"`
	}
	if err := yaml.Unmarshal(kubeconfig, &file); err != nil {
		return Endpoints{}, fmt.Errorf("pki: not a kubeconfig: %w", err)
	}
	if len(file.Clusters) != 1 {
		return Endpoints{}, fmt.Errorf("pki: a kubeconfig with %d clusters, not one", len(file.Clusters))
	}
	at := Endpoints{REST: file.Clusters[0].Cluster.Server}
	for _, e := range file.Clusters[0].Cluster.Extensions {
		if e.Name == GRPCExtension {
			at.GRPC = e.Extension.Address
		}
	}
	return at, nil
}
