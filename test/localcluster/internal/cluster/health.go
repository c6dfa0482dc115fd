// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/logtail"
)

const (
	probeTimeout = 2 * time.Second
	probePause   = 50 * time.Millisecond
	// healthyWithin is how long a component may take. The slowest needs some seconds
	// on two cores; the rest is for a machine that is busy with something else.
	healthyWithin = 4 * time.Minute
)

// probe is one condition of a component's health: an URL that answers 200, or an
// address that speaks TLS with a certificate of this cluster.
type probe struct {
	url        string
	tlsAddress string
}

// healthy checks all probes of a component.
func (c *Cluster) healthy(ctx context.Context, comp component) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	config, err := c.clientTLS()
	if err != nil {
		return err
	}
	for _, p := range comp.health(c) {
		if err := p.check(ctx, config); err != nil {
			return err
		}
	}
	return nil
}

func (p probe) check(ctx context.Context, config *tls.Config) error {
	if p.tlsAddress == "" {
		return p.get(ctx, config)
	}
	dialer := tls.Dialer{Config: config}
	conn, err := dialer.DialContext(ctx, "tcp", p.tlsAddress)
	if err != nil {
		return fmt.Errorf("webhook server: %w", err)
	}
	return conn.Close()
}

func (p probe) get(ctx context.Context, config *tls.Config) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url, nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true, DialContext: new(net.Dialer).DialContext}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // only read
	if response.StatusCode == http.StatusOK {
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(response.Body, 300))
	return fmt.Errorf("%s answers %s: %s", p.url, response.Status, body)
}

func (c *Cluster) clientTLS() (*tls.Config, error) {
	authority, err := os.ReadFile(c.path(authorityCertFile))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

// waitHealthy polls until the component is healthy, and gives up as soon as its
// process has ended.
func (c *Cluster) waitHealthy(ctx context.Context, comp component) error {
	deadline := time.Now().Add(healthyWithin)
	for {
		err := c.healthy(ctx, comp)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("interrupted while waiting for %s: %w", comp.name, ctx.Err())
		case !c.process(comp.name).Alive():
			return fmt.Errorf("%s has ended before it was healthy%s", comp.name, logtail.Of(c.logFile(comp.name)))
		case time.Now().After(deadline):
			return fmt.Errorf("%s was not healthy within %s: %w%s", comp.name, healthyWithin, err, logtail.Of(c.logFile(comp.name)))
		}
		select {
		case <-ctx.Done():
		case <-time.After(probePause):
		}
	}
}
