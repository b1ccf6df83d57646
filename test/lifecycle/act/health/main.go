// Command health is what act has serve for it where a scenario wants gRPC's standard health service: it answers at the
// listener that it was given as its first descriptor after the standard ones. Arguments are the name of the service
// that is SERVING, and the time after which it is NOT_SERVING.
package main

import (
	"log"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

const listenerFD = 3

func main() {
	if len(os.Args) != 3 { //nolint:mnd // with the program's name
		log.Fatal("usage: act-health SERVICE TIME")
	}
	until, err := time.ParseDuration(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	l, err := net.FileListener(os.NewFile(listenerFD, "listener"))
	if err != nil {
		log.Fatal(err)
	}
	healthy := health.NewServer()
	healthy.SetServingStatus(os.Args[1], healthv1.HealthCheckResponse_SERVING)
	time.AfterFunc(until, func() { healthy.SetServingStatus(os.Args[1], healthv1.HealthCheckResponse_NOT_SERVING) })
	s := grpc.NewServer()
	healthv1.RegisterHealthServer(s, healthy)
	log.Fatal(s.Serve(l))
}
