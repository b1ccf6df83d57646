package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/client/cache"
	"monoplane.dev/client/record"
	"monoplane.dev/internal/descriptors"
	"monoplane.dev/internal/share"
)

const (
	// askTime is how long somebody who asks for a Service's health may take, and mostAsking how many may at once.
	askTime    = 5 * time.Second
	mostAsking = 64
	// mostQuestion bounds the header of a question.
	mostQuestion = 4 << 10
	// tryHealthAgain is the wait after a port that somebody else has.
	tryHealthAgain = 10 * time.Second
)

// checked is a Service whose health is asked for: a load balancer in front of several nodes asks each whether it has
// endpoints, since with externalTrafficPolicy: Local a node leads connections to none but its own.
type checked struct {
	service *corev1.Service
	// local is how many endpoints are ready on this node.
	local int
}

// health answers at the ports spec.healthCheckNodePort of Services.
type health struct {
	node    string
	log     *slog.Logger
	events  *record.Recorder
	healthy func() bool
	listen  func(ctx context.Context, port uint16) (net.Listener, error)
	// asking is the room of all who ask, at whichever port.
	asking *share.Room[netip.Addr]

	mu       sync.Mutex
	services map[cache.Key]checked
	wake     chan struct{}

	// What follows belongs to run.
	open map[uint16]*answering
	said map[uint16]string
}

// answering is a port that is open for a Service.
type answering struct {
	key    cache.Key
	server *http.Server
}

func newHealth(cfg *Config, events *record.Recorder, healthy func() bool) *health {
	return &health{node: cfg.NodeName, log: cfg.Logger, events: events, healthy: healthy, listen: cfg.HealthListener,
		services: map[cache.Key]checked{}, wake: make(chan struct{}, 1), open: map[uint16]*answering{},
		said: map[uint16]string{}, asking: share.NewRoom[netip.Addr](min(mostAsking, descriptors.Services.Count()/8))}
}

// healthPort is where a Service's health is asked for; 0 for nowhere.
func healthPort(s *corev1.Service) uint16 {
	spec := s.GetSpec()
	_, other := s.GetMetadata().GetLabels()[otherProxy]
	if n := spec.GetHealthCheckNodePort(); !other && spec.GetType() == loadBalancer &&
		spec.GetExternalTrafficPolicy() == "Local" && n > 0 && n < 1<<16 {
		return uint16(n)
	}
	return 0
}

// set is told what a Service has here; nil for one that is gone.
func (h *health) set(key cache.Key, s *corev1.Service, local int) {
	port := healthPort(s)
	h.mu.Lock()
	was, had := h.services[key]
	if port == 0 {
		delete(h.services, key)
	} else {
		h.services[key] = checked{service: s, local: local}
	}
	h.mu.Unlock()
	if had && healthPort(was.service) == port || !had && port == 0 {
		return
	}
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// run opens and closes ports until ctx ends.
func (h *health) run(ctx context.Context) error {
	defer func() {
		for _, a := range h.open {
			_ = a.server.Close()
		}
	}()
	for {
		var again <-chan time.Time
		if !h.reconcile(ctx) {
			again = time.After(tryHealthAgain)
		}
		select {
		case <-h.wake:
		case <-again:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// reconcile opens what is asked for and closes what is no more. It tells whether all are open.
func (h *health) reconcile(ctx context.Context) bool {
	h.mu.Lock()
	wanted := make(map[uint16]checked, len(h.services))
	for _, c := range h.services {
		wanted[healthPort(c.service)] = c
	}
	h.mu.Unlock()
	for port, a := range h.open {
		if c, ok := wanted[port]; !ok || cache.KeyOf(c.service) != a.key {
			_ = a.server.Close()
			delete(h.open, port)
		}
	}
	for port := range h.said {
		if _, ok := wanted[port]; !ok {
			delete(h.said, port)
		}
	}
	all := true
	for port, c := range wanted {
		if h.open[port] != nil {
			continue
		}
		l, err := h.listen(ctx, port)
		if err != nil {
			all = false
			if h.said[port] != err.Error() {
				h.said[port] = err.Error()
				h.events.Event(c.service, record.Warning, "FailedToStartServiceHealthcheck", "Serving", fmt.Sprintf(
					"The health check port %d is not served on node %s: %v. It is tried again", port, h.node, err))
			}
			continue
		}
		delete(h.said, port)
		h.open[port] = h.serve(l, cache.KeyOf(c.service))
	}
	return all
}

// serve answers for a Service until the server is closed.
func (h *health) serve(l net.Listener, key cache.Key) *answering {
	server := &http.Server{
		Handler:     http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { h.answer(w, key) }),
		ReadTimeout: askTime, WriteTimeout: askTime, MaxHeaderBytes: mostQuestion,
		ErrorLog: slog.NewLogLogger(h.log.Handler(), slog.LevelDebug),
	}
	server.SetKeepAlivesEnabled(false)
	go func() {
		err := server.Serve(share.Listen(l, h.asking, share.Network))
		if !errors.Is(err, http.ErrServerClosed) {
			h.log.Error("The health of a Service is not answered any more", "service", key, "err", err)
		}
	}()
	return &answering{key: key, server: server}
}

// answer says whether a Service has endpoints on this node that traffic reaches, in the words of kube-proxy.
func (h *health) answer(w http.ResponseWriter, key cache.Key) {
	h.mu.Lock()
	local := h.services[key].local
	h.mu.Unlock()
	type service struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	}
	said := struct {
		Service             service `json:"service"`
		LocalEndpoints      int     `json:"localEndpoints"`
		ServiceProxyHealthy bool    `json:"serviceProxyHealthy"`
	}{service{key.Namespace, key.Name}, local, h.healthy()}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(local))
	if local == 0 || !said.ServiceProxyHealthy {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(said) // who asked may be gone
}
