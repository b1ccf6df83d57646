package conformance

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// startKubernetes starts etcd and Kubernetes' API server, controllers and scheduler, all from the program that
// tools/kubernetes builds, with imitated kubelets of three nodes.
func startKubernetes(ctx context.Context, program, dir string) (_ *server, err error) {
	var running []*process
	stop := func() error {
		var errs []error
		for _, p := range slices.Backward(running) {
			errs = append(errs, p.stop())
		}
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, stop())
		}
	}()
	run := func(args ...string) (*process, error) {
		p, err := launch(program, args...)
		if err == nil {
			running = append(running, p)
		}
		return p, err
	}
	port, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	database, address := "http://127.0.0.1:"+port[0], "https://127.0.0.1:"+port[1]
	if _, err := run("etcd", in("etcd"), database); err != nil {
		return nil, err
	}
	if err := writeKey(in("sa.key")); err != nil {
		return nil, err
	}
	const token = "admin-token,kubernetes-admin,1,system:masters\n"
	if err := os.WriteFile(in("tokens.csv"), []byte(token), 0o600); err != nil {
		return nil, err
	}
	api, err := run("kube-apiserver", "--etcd-servers="+database, "--secure-port="+port[1], "--bind-address=127.0.0.1",
		"--cert-dir="+in("certs"), "--token-auth-file="+in("tokens.csv"), "--authorization-mode=Node,RBAC",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+in("sa.key"),
		"--service-account-signing-key-file="+in("sa.key"), "--service-cluster-ip-range=10.96.0.0/16",
		"--allow-privileged=true")
	if err != nil {
		return nil, err
	}
	authority := in("certs/apiserver.crt")
	kubeconfig := fmt.Sprintf(kubeconfigFormat, address, authority)
	if err := os.WriteFile(in("kubeconfig"), []byte(kubeconfig), 0o600); err != nil {
		return nil, err
	}
	var client kubernetes.Interface
	err = api.until("start of kube-apiserver", func() error {
		if _, err := os.Stat(authority); err != nil {
			return err
		}
		config, err := clientcmd.BuildConfigFromFlags("", in("kubeconfig"))
		if err != nil {
			return err
		}
		config.QPS = -1
		if client, err = kubernetes.NewForConfig(config); err != nil {
			return err
		}
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
	if err != nil {
		return nil, err
	}
	if _, err := run("kube-controller-manager", "--kubeconfig="+in("kubeconfig"), "--root-ca-file="+authority,
		"--service-account-private-key-file="+in("sa.key"), "--leader-elect=false", "--secure-port=0",
		"--use-service-account-credentials=false"); err != nil {
		return nil, err
	}
	if _, err := run("kube-scheduler", "--kubeconfig="+in("kubeconfig"), "--leader-elect=false",
		"--secure-port=0"); err != nil {
		return nil, err
	}
	kubelets, cancel := context.WithCancel(context.Background())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		hollow(kubelets, client)
	}()
	err = api.until("three ready nodes and the default service account", func() error {
		if _, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{}); err != nil {
			return err
		}
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, n := range nodes.Items {
			if len(n.Spec.Taints) > 0 {
				return fmt.Errorf("node %s has taints %v", n.Name, n.Spec.Taints)
			}
		}
		if len(nodes.Items) < hollowNodes {
			return fmt.Errorf("%d nodes", len(nodes.Items))
		}
		return nil
	})
	stopProcesses := stop
	stop = func() error {
		cancel()
		<-gone
		return stopProcesses()
	}
	if err != nil {
		return nil, err
	}
	return &server{in("kubeconfig"), stop}, nil
}

const kubeconfigFormat = `apiVersion: v1
kind: Config
current-context: monoplane
clusters:
- name: monoplane
  cluster:
    server: %s
    certificate-authority: %s
contexts:
- name: monoplane
  context: {cluster: monoplane, user: admin}
users:
- name: admin
  user: {token: admin-token}
`

// freePorts finds ports that nobody listens on.
func freePorts(n int) ([]string, error) {
	var ports []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().String()[strings.LastIndex(l.Addr().String(), ":")+1:])
	}
	return ports, nil
}

// writeKey makes the key that tokens of service accounts are signed with.
func writeKey(path string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	return os.WriteFile(path, pem.EncodeToMemory(block), 0o600)
}

// heartbeat is how often the imitated kubelets renew their leases.
const heartbeat = 5 * time.Second
