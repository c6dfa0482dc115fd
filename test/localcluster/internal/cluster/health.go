// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	certutil "k8s.io/client-go/util/cert"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/logtail"
)

const (
	probeTimeout = 2 * time.Second
	probePause   = 50 * time.Millisecond
	// healthyWithin is how long a component may take. The slowest needs some seconds
	// on two cores; the rest is for a machine that is busy with something else.
	healthyWithin = 4 * time.Minute
)

// healthy checks what a component serves: an URL with a path has to answer 200, and one without to speak
// TLS with a certificate of this cluster, as webhook servers do.
func (c *Cluster) healthy(ctx context.Context, comp component) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	authority, err := certutil.NewPool(c.path(authorityCertFile))
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: authority, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true,
	}}
	for _, url := range comp.health(c) {
		if err := get(ctx, &client, url); err != nil {
			return err
		}
	}
	return nil
}

func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // only read
	if response.StatusCode == http.StatusOK || request.URL.Path == "" {
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(response.Body, 300))
	return fmt.Errorf("%s answers %s: %s", url, response.Status, body)
}

// waitHealthy polls until the component is healthy, and gives up as soon as its
// process has ended.
func (c *Cluster) waitHealthy(ctx context.Context, comp component) error {
	var unhealthy error
	err := wait.PollUntilContextTimeout(ctx, probePause, healthyWithin, true, func(ctx context.Context) (bool, error) {
		unhealthy = c.healthy(ctx, comp)
		if unhealthy != nil && !c.process(comp.name).Alive() {
			return false, errors.New("it has ended")
		}
		return unhealthy == nil, nil
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted while waiting for %s: %w", comp.name, ctx.Err())
	case !wait.Interrupted(err):
		return fmt.Errorf("%s has ended before it was healthy%s", comp.name, logtail.Of(c.logFile(comp.name)))
	}
	return fmt.Errorf("%s was not healthy within %s: %w%s", comp.name, healthyWithin, unhealthy, logtail.Of(c.logFile(comp.name)))
}
