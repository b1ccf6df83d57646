package fake

import (
	"context"
	"net/netip"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Config says how a Runtime behaves. The zero value is usable.
type Config struct {
	// Name is what Version reports and container ids are prefixed with in a pod's status; "fake" when empty.
	Name string
	// PodCIDR is the range that sandboxes take their addresses from, one after the other;
	// 10.244.0.0/16 when unset. Runtimes of several nodes should have ranges of their own.
	PodCIDR netip.Prefix
	// CPU and Memory are what a container uses of which no annotation says it, quantities such as "1m"; nothing is told
	// of it when empty.
	CPU, Memory string
	// FinishAfter is how long after its start a container exits with 0 that is to end by itself, as
	// criconfig.AnnotationFinishes says, if no annotation of its pod says when it exits. 0: it runs on.
	FinishAfter time.Duration
	// Fault, if set, is asked before every call that changes something; what it returns is the call's error.
	// Id is the sandbox or container, for RunPodSandbox the pod's uid, for CreateContainer the container's name.
	Fault func(method, id string) error
	// Journal, if set, is told of starts, signals and exits, in order. It must not call the Runtime.
	Journal func(Entry)
	// MuteEvents makes GetContainerEvents fail, as runtimes without container events do.
	MuteEvents bool
}

// Entry is a line of the journal.
type Entry struct {
	// Time says when.
	Time time.Time
	// What is "START", "TERM", "KILL", "EXIT" or "EXEC" with a command.
	What string
	// Namespace, Pod, UID and Container say who; Attempt counts the container's starts from 0.
	Namespace, Pod, UID, Container string
	// Attempt is the container's attempt number.
	Attempt uint32
}

// Runtime is a CRI runtime in memory. It implements runtimeapi.RuntimeServiceServer and
// runtimeapi.ImageServiceServer. Use New.
type Runtime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer

	cfg Config

	mu          sync.Mutex
	sandboxes   map[string]*sandbox
	containers  map[string]*container
	subscribers map[*subscriber]struct{}
	lastIP      netip.Addr
}

// New returns a runtime that runs nothing yet.
func New(cfg Config) *Runtime {
	if cfg.Name == "" {
		cfg.Name = "fake"
	}
	if !cfg.PodCIDR.IsValid() {
		cfg.PodCIDR = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, 0, 0}), 16)
	}
	return &Runtime{
		cfg: cfg, sandboxes: make(map[string]*sandbox), containers: make(map[string]*container),
		subscribers: make(map[*subscriber]struct{}), lastIP: cfg.PodCIDR.Masked().Addr(),
	}
}

// Version implements runtimeapi.RuntimeServiceServer.
func (r *Runtime) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{
		Version: "0.1.0", RuntimeName: r.cfg.Name, RuntimeVersion: "1.0.0", RuntimeApiVersion: "v1",
	}, nil
}

// Status implements runtimeapi.RuntimeServiceServer: runtime and network are always ready.
func (r *Runtime) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true}, {Type: runtimeapi.NetworkReady, Status: true},
	}}}, nil
}

// UpdateRuntimeConfig implements runtimeapi.RuntimeServiceServer; nothing depends on it.
func (r *Runtime) UpdateRuntimeConfig(
	context.Context, *runtimeapi.UpdateRuntimeConfigRequest,
) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

// fault asks the configured fault function. It is called without the lock.
func (r *Runtime) fault(method, id string) error {
	if r.cfg.Fault == nil {
		return nil
	}
	return r.cfg.Fault(method, id)
}

// nextIP returns the next address of the range, starting over at its end. The caller holds the lock.
func (r *Runtime) nextIP() string {
	next := r.lastIP.Next()
	if !r.cfg.PodCIDR.Contains(next) {
		next = r.cfg.PodCIDR.Masked().Addr().Next()
	}
	r.lastIP = next
	return next.String()
}
