FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY pkg pkg
COPY cmd cmd
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o /kueue-trainer ./cmd/kueue-trainer

FROM gcr.io/distroless/static:nonroot
COPY --from=build /kueue-trainer /kueue-trainer
USER 65532:65532
ENTRYPOINT ["/kueue-trainer"]
