package client

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// GRPCExtension is the name of the extension that a kubeconfig's cluster carries to say where the gRPC API is:
//
//	clusters:
//	- name: monoplane
//	  cluster:
//	    server: https://127.0.0.1:6443
//	    extensions:
//	    - name: monoplane.dev/grpc
//	      extension: {address: "127.0.0.1:6444"}
//
// kubectl keeps and ignores it.
const GRPCExtension = "monoplane.dev/grpc"

type kubeconfig struct {
	CurrentContext string `json:"current-context"`
	Clusters       []struct {
		Name    string `json:"name"`
		Cluster struct {
			Server        string `json:"server"`
			CAFile        string `json:"certificate-authority"`
			CAData        string `json:"certificate-authority-data"`
			TLSServerName string `json:"tls-server-name"`
			Extensions    []struct {
				Name      string `json:"name"`
				Extension struct {
					Address string `json:"address"`
				} `json:"extension"`
			} `json:"extensions"`
		} `json:"cluster"`
	} `json:"clusters"`
	Users []struct {
		Name string `json:"name"`
		User struct {
			CertFile  string `json:"client-certificate"`
			CertData  string `json:"client-certificate-data"`
			KeyFile   string `json:"client-key"`
			KeyData   string `json:"client-key-data"`
			Token     string `json:"token"`
			TokenFile string `json:"tokenFile"`
		} `json:"user"`
	} `json:"users"`
	Contexts []struct {
		Name    string `json:"name"`
		Context struct {
			Cluster string `json:"cluster"`
			User    string `json:"user"`
		} `json:"context"`
	} `json:"contexts"`
}

// LoadConfig reads the current context of the kubeconfig at path. Relative file names in it count from its folder.
// A file without the GRPCExtension gives a Config without Address, for the caller to set.
func LoadConfig(path string) (Config, error) {
	data, err := os.ReadFile(path) //nolint:gosec // the caller names the file on purpose
	if err != nil {
		return Config{}, fmt.Errorf("client: %w", err)
	}
	cfg, err := parseKubeconfig(data, filepath.Dir(path))
	if err != nil {
		return Config{}, fmt.Errorf("client: kubeconfig %s: %w", path, err)
	}
	return cfg, nil
}

func parseKubeconfig(data []byte, dir string) (Config, error) {
	var k kubeconfig
	if err := yaml.Unmarshal(data, &k); err != nil {
		return Config{}, err
	}
	cluster, user := -1, -1
	found := false
	for _, c := range k.Contexts {
		if c.Name != k.CurrentContext {
			continue
		}
		found = true
		for i := range k.Clusters {
			if k.Clusters[i].Name == c.Context.Cluster {
				cluster = i
			}
		}
		for i := range k.Users {
			if k.Users[i].Name == c.Context.User {
				user = i
			}
		}
	}
	if !found {
		return Config{}, fmt.Errorf("there is no context %q", k.CurrentContext)
	}
	if cluster < 0 || user < 0 {
		return Config{}, fmt.Errorf("context %q names a cluster or a user that is not there", k.CurrentContext)
	}
	cl, us := &k.Clusters[cluster].Cluster, &k.Users[user].User

	ca, err := dataOrFile("certificate-authority", cl.CAData, cl.CAFile, dir)
	if err != nil {
		return Config{}, err
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: cl.TLSServerName}
	if len(ca) > 0 {
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(ca) {
			return Config{}, errors.New("certificate-authority holds no PEM certificate")
		}
	}
	cert, err := dataOrFile("client-certificate", us.CertData, us.CertFile, dir)
	if err != nil {
		return Config{}, err
	}
	key, err := dataOrFile("client-key", us.KeyData, us.KeyFile, dir)
	if err != nil {
		return Config{}, err
	}
	if len(cert) > 0 {
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return Config{}, fmt.Errorf("client certificate: %w", err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	cfg := Config{TLS: t, Token: us.Token}
	if cfg.Token == "" && us.TokenFile != "" {
		token, err := dataOrFile("token", "", us.TokenFile, dir)
		if err != nil {
			return Config{}, err
		}
		cfg.Token = string(token)
	}
	for _, e := range cl.Extensions {
		if e.Name == GRPCExtension {
			cfg.Address = e.Extension.Address
		}
	}
	if cfg.Address != "" {
		if _, _, err := net.SplitHostPort(cfg.Address); err != nil {
			return Config{}, fmt.Errorf("extension %s: %w", GRPCExtension, err)
		}
	}
	if _, err := url.Parse(cl.Server); err != nil {
		return Config{}, fmt.Errorf("server: %w", err)
	}
	return cfg, nil
}

// dataOrFile returns what a kubeconfig holds inline in base64 or names as a file; nil when it does neither.
func dataOrFile(what, data, file, dir string) ([]byte, error) {
	if data != "" {
		b, err := base64.StdEncoding.DecodeString(data)
		if err != nil {
			return nil, fmt.Errorf("%s-data: %w", what, err)
		}
		return b, nil
	}
	if file == "" {
		return nil, nil
	}
	if !filepath.IsAbs(file) {
		file = filepath.Join(dir, file)
	}
	b, err := os.ReadFile(file) //nolint:gosec // the kubeconfig names the file on purpose
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return b, nil
}
