package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	mdns "github.com/miekg/dns"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/nodeagent/network/dns"
	"monoplane.dev/nodeagent/network/nodens"
)

const (
	benchName = "web.shop.svc.cluster.local."
	// benchResolver is where pods ask.
	benchResolver = "10.212.255.10"
	// askers is how many ask at the same time, each one question after the other.
	askers = 16
	// leastAnswers a second, and the longest time that one may take.
	leastAnswers = 20_000
	mostLatency  = time.Millisecond
)

// benchNames asks the cluster's DNS for a Service, and beside it a server of the same library that says the same to
// everything.
func benchNames(ctx context.Context, e *env) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server, err := benchServer(e)
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	ours, err := lc.ListenPacket(ctx, "udp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, []net.PacketConn{ours}, nil) }()
	bare, err := lc.ListenPacket(ctx, "udp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	answer, err := mdns.NewRR(benchName + " 5 IN A " + benchClusterIP(0))
	if err != nil {
		return err
	}
	echo := &mdns.Server{PacketConn: bare, Handler: mdns.HandlerFunc(func(w mdns.ResponseWriter, m *mdns.Msg) {
		out := new(mdns.Msg).SetReply(m)
		out.Answer = []mdns.RR{answer}
		_ = w.WriteMsg(out)
	})}
	go func() { _ = echo.ActivateAndServe() }()
	defer func() { _ = echo.Shutdown() }()

	questions := e.size(100_000)
	ask := func(at net.Addr) func(int) (float64, error) {
		return func(int) (float64, error) { return askMany(at.String(), questions) }
	}
	p, err := paired(5, ask(ours.LocalAddr()), ask(bare.LocalAddr()))
	if err != nil {
		return err
	}
	e.print(row{name: "answers of the cluster's DNS", measured: perSecond(p.got),
		limit: "bare miekg/dns " + perSecond(p.limit), ratio: p.ratio,
		target: ">= " + perSecond(leastAnswers), met: p.got >= leastAnswers})
	middle, worst, err := latency(ours.LocalAddr().String(), e.size(20_000))
	if err != nil {
		return err
	}
	bareMiddle, _, err := latency(bare.LocalAddr().String(), e.size(20_000))
	if err != nil {
		return err
	}
	e.print(row{name: "an answer of the cluster's DNS (p50, p99)", measured: fmt.Sprintf("%.3f, %.3f ms", ms(middle),
		ms(worst)), limit: fmt.Sprintf("bare miekg/dns %.3f ms", ms(bareMiddle)),
		ratio: middle.Seconds() / bareMiddle.Seconds(), target: fmt.Sprintf("< %.0f ms", ms(mostLatency)),
		met: worst < mostLatency})
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// benchServer is the cluster's DNS, which knows many Services.
func benchServer(e *env) (*dns.Server, error) {
	zone := dns.NewZone("cluster.local")
	zone.SetNamespace("shop", true)
	for i := range e.size(manyServices) {
		zone.Set(&corev1.Service{Metadata: &metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("s", i)},
			Spec: &corev1.ServiceSpec{Type: "ClusterIP", ClusterIP: benchClusterIP(i + 1)}}, nil)
	}
	zone.Set(&corev1.Service{Metadata: &metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: &corev1.ServiceSpec{Type: "ClusterIP", ClusterIP: benchClusterIP(0)}}, nil)
	zone.Open()
	return dns.NewServer(dns.Config{Zone: zone})
}

// benchPodNames has a pod ask the cluster's DNS, which listens in the node namespace, as it does for pods.
func benchPodNames(ctx context.Context, e *env, n *nodens.Namespace, pod *inNamespace) (err error) {
	server, err := benchServer(e)
	if err != nil {
		return err
	}
	at := netip.MustParseAddrPort(benchResolver + ":53")
	if err := n.AddAddresses(ctx, at.Addr()); err != nil {
		return err
	}
	socket, err := n.ListenPacket(ctx, at)
	if err != nil {
		return err
	}
	serving, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- server.Serve(serving, []net.PacketConn{socket}, nil) }()
	defer func() {
		cancel()
		if end := <-done; !errors.Is(end, context.Canceled) {
			err = errors.Join(err, end)
		}
	}()
	many, err := pod.do(inOrder{Ask: at.String(), Questions: e.size(100_000)})
	if err != nil {
		return err
	}
	e.print(row{name: "answers of the cluster's DNS to a pod", measured: perSecond(many),
		target: ">= " + perSecond(leastAnswers), met: many >= leastAnswers})
	worst, err := pod.do(inOrder{Ask: at.String(), Questions: e.size(20_000), Alone: true})
	if err != nil {
		return err
	}
	e.print(row{name: "an answer of the cluster's DNS to a pod (p99)", measured: fmt.Sprintf("%.3f ms", worst*1e3),
		target: fmt.Sprintf("< %.0f ms", ms(mostLatency)), met: worst < mostLatency.Seconds()})
	return nil
}

// askMany returns the answers a second that many get who ask at the same time.
func askMany(at string, questions int) (float64, error) {
	begun := time.Now()
	errs := make([]error, askers)
	var all sync.WaitGroup
	for i := range askers {
		all.Go(func() { _, errs[i] = askFor(at, questions/askers) })
	}
	all.Wait()
	return float64(questions/askers*askers) / time.Since(begun).Seconds(), errors.Join(errs...)
}

// latency returns the median and the 99th percentile of one who asks alone.
func latency(at string, questions int) (middle, worst time.Duration, err error) {
	took, err := askFor(at, questions)
	if err != nil {
		return 0, 0, err
	}
	slices.Sort(took)
	return took[len(took)/2], took[len(took)*99/100], nil
}

// askFor asks one question after the other, and returns how long each took.
func askFor(at string, questions int) ([]time.Duration, error) {
	c, err := net.Dial("udp", at)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	question, err := new(mdns.Msg).SetQuestion(benchName, mdns.TypeA).Pack()
	if err != nil {
		return nil, err
	}
	took := make([]time.Duration, 0, questions)
	buf := make([]byte, mdns.MaxMsgSize)
	for range questions {
		begun := time.Now()
		if err := c.SetDeadline(begun.Add(10 * time.Second)); err != nil {
			return nil, err
		}
		if _, err := c.Write(question); err != nil {
			return nil, err
		}
		n, err := c.Read(buf)
		if err != nil {
			return nil, fmt.Errorf("the answer of %s: %w", at, err)
		}
		if n <= len(question) {
			return nil, fmt.Errorf("%s answers %d bytes without an address", at, n)
		}
		took = append(took, time.Since(begun))
	}
	return took, nil
}
