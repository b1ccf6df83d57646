//go:build kubernetes

package oracle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierr "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	apiservice "k8s.io/kubernetes/pkg/api/service"
	"k8s.io/kubernetes/pkg/apis/core"
	svcreg "k8s.io/kubernetes/pkg/registry/core/service"
	"k8s.io/kubernetes/pkg/registry/core/service/ipallocator"
	"k8s.io/kubernetes/pkg/registry/core/service/portallocator"
	svcstorage "k8s.io/kubernetes/pkg/registry/core/service/storage"
	netutils "k8s.io/utils/net"
)

// theirServices is Kubernetes' storage of Services, without anything to store in.
type theirServices struct{ *genericregistry.Store }

// addressesInOrder gives the last address that is free in place of one by chance, and portsInOrder such a port: the
// first ones are asked for by name.
type addressesInOrder struct {
	ipallocator.Interface
	first net.IP
}

func (a addressesInOrder) AllocateNext() (net.IP, error) {
	base := netutils.BigForIP(a.first)
	for offset := 254; offset > 0; offset-- {
		if ip := netutils.AddIPOffset(base, offset); a.Allocate(ip) == nil {
			return ip, nil
		}
	}
	return nil, ipallocator.ErrFull
}

type portsInOrder struct{ portallocator.Interface }

func (p portsInOrder) AllocateNext() (int, error) {
	for port := 30999; port >= 30000; port-- {
		if p.Allocate(port) == nil {
			return port, nil
		}
	}
	return 0, portallocator.ErrFull
}

// newTheirServices returns Kubernetes' side of servedBy.
func newTheirServices(t testing.TB, dual bool) theirServices {
	cidrs := map[core.IPFamily]string{core.IPv4Protocol: "10.96.0.0/24"}
	if dual {
		cidrs[core.IPv6Protocol] = "fd00::/120"
	}
	allocators := map[core.IPFamily]ipallocator.Interface{}
	for family, cidr := range cidrs {
		_, parsed, err := netutils.ParseCIDRSloppy(cidr)
		if err != nil {
			t.Fatal(err)
		}
		a, err := ipallocator.NewInMemory(parsed)
		if err != nil {
			t.Fatal(err)
		}
		allocators[family] = addressesInOrder{Interface: a, first: parsed.IP}
	}
	ports, err := portallocator.NewInMemory(*utilnet.ParsePortRangeOrDie("30000-30999"))
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(allocators[core.IPv4Protocol].Allocate(net.ParseIP("10.96.0.20")), ports.Allocate(30005))
	if err != nil {
		t.Fatal(err)
	}
	opts := generic.RESTOptions{
		StorageConfig:  (&storagebackend.Config{}).ForResource(schema.GroupResource{Resource: "services"}),
		ResourcePrefix: "services",
		Decorator: func(*storagebackend.ConfigForResource, string, func(runtime.Object) (string, error),
			func() runtime.Object, func() runtime.Object, storage.AttrFunc, storage.IndexerFuncs, *cache.Indexers,
		) (storage.Interface, factory.DestroyFunc, error) {
			return nil, func() {}, nil
		},
	}
	rest, _, _, err := svcstorage.NewREST(opts, core.IPv4Protocol, allocators, portsInOrder{ports}, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return theirServices{rest.Store}
}

// create is what Kubernetes makes of a new Service.
func (s theirServices) create(in *core.Service) error {
	ctx := context.Background()
	finish, err := s.BeginCreate(ctx, in, &metav1.CreateOptions{})
	if err != nil {
		return err
	}
	svcreg.Strategy.PrepareForCreate(ctx, in)
	if errs := svcreg.Strategy.Validate(ctx, in); len(errs) > 0 {
		finish(ctx, false)
		return apierr.NewInvalid(core.Kind("Service"), in.Name, errs)
	}
	finish(ctx, true)
	return nil
}

// errPanic is Kubernetes' answer where its own code does not stand what it is given; its server says "internal error".
var errPanic = errors.New("panic in Kubernetes")

// update is what Kubernetes makes of a change.
func (s theirServices) update(in, old *core.Service) (err error) {
	defer func() {
		if what := recover(); what != nil {
			err = fmt.Errorf("%w: %v", errPanic, what)
		}
	}()
	ctx := context.Background()
	if _, err := s.BeginUpdate(ctx, in, old, &metav1.UpdateOptions{}); err != nil {
		return err
	}
	svcreg.Strategy.PrepareForUpdate(ctx, in, old)
	if errs := svcreg.Strategy.ValidateUpdate(ctx, in, old); len(errs) > 0 {
		return apierr.NewInvalid(core.Kind("Service"), in.Name, errs)
	}
	return nil
}

// theirServiceFaults are those of an error like those of ourServiceFaults.
func theirServiceFaults(err error) faults {
	var status *apierr.StatusError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &status) || status.ErrStatus.Details == nil || len(status.ErrStatus.Details.Causes) == 0 ||
		status.ErrStatus.Code == 500:
		return faults{{message: err.Error()}: true}
	}
	set := faults{}
	for _, c := range status.ErrStatus.Details.Causes {
		set[fault{string(c.Type), c.Field, plainText(c.Message)}] = true
	}
	return set
}

func theirNewService(t testing.TB, past *course, dual bool, k *v1.Service) (out servedService) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	s := newTheirServices(t, dual)
	past.theirs = s
	in := internal(t, k, &core.Service{})
	if out.Faults = theirServiceFaults(s.create(in)); len(out.Faults) == 0 {
		out.Object, out.Warnings = external(t, in, &v1.Service{}), apiservice.GetWarningsForService(in, nil)
	}
	return out
}

func theirService(t testing.TB, past *course, next, live *v1.Service) (out servedService) {
	now, old := internal(t, next, &core.Service{}), internal(t, live, &core.Service{})
	err := past.theirs.(theirServices).update(now, old)
	if out.Faults = theirServiceFaults(err); err == nil {
		out.Object = external(t, now, &v1.Service{})
		return out
	}
	out.Internal = errors.Is(err, errPanic) || strings.HasPrefix(err.Error(), "duplicate nodePort")
	return out
}
